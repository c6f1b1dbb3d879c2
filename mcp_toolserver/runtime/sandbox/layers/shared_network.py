"""A network namespace that several commands share: a loopback interface and nothing else.

A namespace exists as long as a descriptor of it is open, so no process has to stay in it. It belongs to a
user namespace of its own, because an ordinary user can enter a network namespace only by way of one. A
command is in a user namespace below that and has no capability in either, so it cannot change the interface.
"""

import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from mcp_toolserver.runtime.sandbox.broker.fd_passing import receive, send
from mcp_toolserver.runtime.sandbox.layers import kernel
from mcp_toolserver.runtime.sandbox.layers.user_namespace import enter_user_namespace

_SET_FLAGS, _UP = 0x8914, 0x1
_INTERFACE = struct.Struct("16sh14x")


@dataclass(frozen=True, kw_only=True)
class SharedNetwork:
    """The namespaces, open."""

    user: int
    network: int

    @property
    def descriptors(self) -> tuple[int, int]:
        """Both, as they are passed to another process."""
        return self.user, self.network

    @classmethod
    def received(cls, descriptors: Sequence[int]) -> "SharedNetwork | None":
        """Take the `descriptors` that another process passed; None if it passed none."""
        if not descriptors:
            return None
        user, network = descriptors
        return cls(user=user, network=network)

    @classmethod
    def create(cls) -> "SharedNetwork":
        """Create the namespaces in a short-lived fork of this process.

        Raises:
            OSError: they cannot be made, or loopback cannot be brought up.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            child = os.fork()
            if child == 0:
                _create(theirs)
            theirs.close()
            try:
                descriptors = receive(ours)
            finally:
                _, status = os.waitpid(child, 0)
        if (made := cls.received(descriptors)) is not None:
            return made
        code = os.waitstatus_to_exitcode(status)
        raise OSError(max(code, 0), os.strerror(code) if code > 0 else "the process that makes it was killed")

    def join(self) -> None:
        """Move this process, which has one thread, into the namespaces.

        Raises:
            OSError: the kernel refused; the process may be in a part of them.
        """
        # The power to enter the second comes with the first.
        kernel.setns(self.user)
        kernel.setns(self.network)

    def close(self) -> None:
        """Close the descriptors. The namespaces go with the last process in them."""
        for descriptor in self.descriptors:
            os.close(descriptor)


def _create(to: socket.socket) -> None:
    """Create the namespaces around this fork, send descriptors of them, and exit with 0 or an errno."""
    status = 1
    with contextlib.suppress(BaseException):
        try:
            # Not dumpable, an unprivileged process does not own its files in /proc.
            kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
            enter_user_namespace(kernel.CLONE_NEWNET)
            _bring_up_loopback()
            send(to, [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in ("user", "net")])
            status = 0
        except OSError as error:
            status = error.errno or 1
    os._exit(status)


def _bring_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, _INTERFACE.pack(b"lo", _UP))
