"""Passes descriptors between processes, over a socket."""

import contextlib
import errno
import os
import socket
from array import array
from collections.abc import Sequence

from mcp_toolserver.runtime.sandbox.broker.messages import encode_event

MOST_AT_ONCE = 250
"""The kernel passes 253 in one packet."""

NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
"""Absent on macOS; who sends there ignores SIGPIPE."""

_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
"""Absent on macOS. Where descriptors are received there, no other thread forks."""

_LONGEST = 64
"""Bytes of a packet."""

_MORE, _LAST = b"+", b"."


class Reserve:
    """A reserved descriptor, released to make room for another when the process has no more."""

    def __init__(self) -> None:
        self._held = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def release(self) -> None:
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    def renew(self) -> None:
        if self._held < 0:
            with contextlib.suppress(OSError):
                self._held = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


class Truncated(OSError):
    """A packet had more descriptors than this process may open; `descriptors` are those that it got."""

    def __init__(self, message: bytes, descriptors: list[int]) -> None:
        super().__init__(errno.EMFILE, os.strerror(errno.EMFILE))
        self.message = message
        self.descriptors = descriptors


def is_out_of_files(error: OSError) -> bool:
    return error.errno in (errno.EMFILE, errno.ENFILE)


def unstartable(error: OSError) -> str:
    """Return why a program cannot be started, as text for the server."""
    if is_out_of_files(error):
        return "too many files are open in the process broker; try again later"
    return os.strerror(error.errno or 0)


def refuse(control: int, why: str) -> None:
    """Tell the server on `control`, which stays open, that its program cannot be started."""
    # The server may be gone, and what came may be no socket.
    with contextlib.suppress(OSError):
        to = socket.socket(fileno=control)
        try:
            to.send(encode_event({"failed": why}), NO_SIGNAL | socket.MSG_DONTWAIT)
        finally:
            to.detach()


def send(to: socket.socket, descriptors: Sequence[int]) -> None:
    """Pass `descriptors`, which stay open here. Raises: OSError: the other end is gone."""
    first, rest = descriptors[:MOST_AT_ONCE], descriptors[MOST_AT_ONCE:]
    socket.send_fds(to, [_MORE if rest else _LAST], first, NO_SIGNAL)
    if rest:
        send(to, rest)


def receive(source: socket.socket) -> list[int]:
    """What one `send` passed; nothing when the other end is gone. No program inherits them.

    Raises:
        Truncated: this process may not open so many.
    """
    message, descriptors = receive_packet(source)
    while message == _MORE:
        message, more = receive_packet(source)
        descriptors += more
    return descriptors


def receive_packet(source: socket.socket) -> tuple[bytes, list[int]]:
    """The next packet and its descriptors, which no program inherits. No bytes: the other end is gone.

    Raises:
        Truncated: as for `receive`.
    """
    received = array("i")
    # socket.recv_fds loses its flags before Python 3.13, and with them MSG_CMSG_CLOEXEC.
    space = socket.CMSG_SPACE(MOST_AT_ONCE * received.itemsize)
    try:
        data, ancillary, flags, _ = source.recvmsg(_LONGEST, space, _CLOSE_ON_EXEC)
    except ConnectionError:
        return b"", []
    except OSError as error:
        if error.errno not in (errno.EMSGSIZE, errno.EMFILE, errno.ENFILE):
            raise
        # macOS answers EMSGSIZE, and has discarded the descriptors.
        raise Truncated(source.recv(_LONGEST), []) from None
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            received.frombytes(content[: len(content) - len(content) % received.itemsize])
    for descriptor in () if _CLOSE_ON_EXEC else received:
        os.set_inheritable(descriptor, False)
    if flags & socket.MSG_CTRUNC:
        raise Truncated(data, list(received))
    return data, list(received)
