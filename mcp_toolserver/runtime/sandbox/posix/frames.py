"""Requests on a stream socket: a frame of fixed size each, and the descriptors that come with it.

macOS has no AF_UNIX sockets that keep packets. A frame may arrive in pieces; its descriptors arrive with its
first bytes. Whoever receives asks for no more bytes than its frame lacks, so no descriptors of the next frame
are taken.
"""

import contextlib
import errno
import os
import select
import socket
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from mcp_toolserver.runtime.sandbox.broker.fd_passing import NO_SIGNAL, receive_piece

_LAYOUT = struct.Struct("!c32sB")
_SEND_SECONDS = 5.0
RECEIVED = b"a"
"""What the broker answers to each frame. Until then the sender keeps the descriptors open: macOS may close a
socket that is on its way and that nobody else has open, and Chromium waits too (crbug.com/298276)."""

_MOST_FAILURES = 64
"""The receiver gives up after so many errors in a row."""

_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.EMSGSIZE)
"""What recvmsg fails with where the receiver may not open so many files. macOS answers EMSGSIZE, and discards
the descriptors."""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A message to the broker, with descriptors that no program inherits."""

    kind: bytes
    """One byte; see `messages`."""
    session: bytes
    """A `session_id`, or nothing."""
    descriptors: list[int]
    is_complete: bool
    """False if this process could not open all of the descriptors."""


def send_frame(to: socket.socket, kind: bytes, session: bytes, descriptors: Sequence[int]) -> None:
    """Send a frame; `descriptors` stay open here. No other thread may send meanwhile.

    Raises:
        OSError: the other end is gone, or (BlockingIOError) takes nothing now. If it takes only a part and no
            more within 5 s, `to` is shut down, because nothing that follows would be understood.
    """
    data = _LAYOUT.pack(kind, session, len(descriptors))
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
    # socket.send_fds loses its flags before Python 3.13.
    sent = to.sendmsg([data], rights, NO_SIGNAL | socket.MSG_DONTWAIT)
    poller = select.poll()
    poller.register(to, select.POLLOUT)
    while sent < len(data):
        if not poller.poll(_SEND_SECONDS * 1000):
            to.shutdown(socket.SHUT_RDWR)
            raise OSError(errno.EPIPE, os.strerror(errno.EPIPE))
        with contextlib.suppress(BlockingIOError):
            sent += to.send(data[sent:], NO_SIGNAL | socket.MSG_DONTWAIT)


def receive_frame(source: socket.socket) -> Frame | None:
    """The next frame; None when the other end is gone.

    Raises:
        OSError: nothing can be received.
    """
    data, descriptors, failures = b"", list[int](), 0
    is_complete = True
    while len(data) < _LAYOUT.size:
        try:
            piece, more, is_whole = receive_piece(source, _LAYOUT.size - len(data))
        except OSError as error:
            failures += 1
            if error.errno not in _NO_ROOM or failures > _MOST_FAILURES:
                raise
            is_complete = False
            continue
        descriptors += more
        is_complete &= is_whole
        if not piece:
            for descriptor in descriptors:
                os.close(descriptor)
            return None
        data += piece
    kind, session, count = _LAYOUT.unpack(data)
    return Frame(
        kind=kind,
        session=session.rstrip(b"\0"),
        descriptors=descriptors,
        is_complete=is_complete and len(descriptors) == count,
    )
