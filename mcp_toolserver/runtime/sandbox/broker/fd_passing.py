"""Descriptors from one process to another, over a socket that keeps packets apart."""

import socket
from array import array
from collections.abc import Sequence

MOST_AT_ONCE = 250
"""The kernel passes 253 in one packet."""

_MORE, _LAST = b"+", b"."


def send(to: socket.socket, descriptors: Sequence[int]) -> None:
    """Pass `descriptors`, which stay open here.

    Raises:
        OSError: the other end is gone.
    """
    first, rest = descriptors[:MOST_AT_ONCE], descriptors[MOST_AT_ONCE:]
    socket.send_fds(to, [_MORE if rest else _LAST], first, socket.MSG_NOSIGNAL)
    if rest:
        send(to, rest)


def receive(source: socket.socket) -> list[int]:
    """What one `send` passed; nothing when the other end is gone. No program inherits them."""
    message, descriptors = receive_packet(source)
    while message == _MORE:
        message, more = receive_packet(source)
        descriptors += more
    return descriptors


def receive_packet(source: socket.socket) -> tuple[bytes, list[int]]:
    """The next packet and its descriptors. No bytes: the other end is gone."""
    received = array("i")
    # socket.recv_fds loses its flags before Python 3.13, and with them MSG_CMSG_CLOEXEC.
    space = socket.CMSG_SPACE(MOST_AT_ONCE * received.itemsize)
    try:
        message, ancillary, _, _ = source.recvmsg(64, space, socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        return b"", []
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            received.frombytes(data[: len(data) - len(data) % received.itemsize])
    return message, list(received)
