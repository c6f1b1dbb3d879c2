"""The server's hold on the broker: the process that starts every other one.

The launcher calls `Broker.start` before any thread exists and before the large imports, so that the broker
stays small and forks safely. Standard library only.
"""

import os
import socket
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from mcp_toolserver.errors import Unavailable
from mcp_toolserver.runtime.sandbox.charter import Charter, Helper
from mcp_toolserver.runtime.sandbox.walls import Proof, heard
from mcp_toolserver.runtime.sandbox.wire import COMMAND, HELPER, Request, Script, encode

__all__ = ["Broker", "Charter", "Helper", "Proof", "Streams"]

MAX_PROOF = 1 << 16

_SERVER_END = 3
_APART = """
import sys
sys.path.insert(0, sys.argv[1])
from mcp_toolserver.runtime.sandbox.apart import main
main(int(sys.argv[2]))
"""


@dataclass(frozen=True, kw_only=True)
class Streams:
    """The descriptors that a program gets; they stay the caller's to close."""

    cwd: int
    stdin: int
    stdout: int
    stderr: int


class Broker:
    """A running broker. It ends, with every command it started, when this end is closed or dies."""

    def __init__(self, requests: socket.socket, pid: int) -> None:
        self._requests = requests
        self.pid = pid

    @classmethod
    def start(cls, charter: Charter) -> Self:
        """Fork the broker from this process, which must have no other thread.

        Raises:
            Unavailable: this platform cannot fork, pass descriptors and adopt orphans.
            RuntimeError: other threads exist; `start_apart` is for that case.
        """
        ours, theirs = _socket_pair()
        if len(os.listdir("/proc/self/task")) > 1:
            raise RuntimeError("a broker cannot be forked from a process with several threads")
        pid = os.fork()
        if pid == 0:
            # Only the fork needs these modules; the server is spared their import.
            from mcp_toolserver.runtime.sandbox.serve import serve

            ours.close()
            serve(theirs, charter)
        theirs.close()
        return cls(ours, pid)

    @classmethod
    def start_apart(cls, charter: Charter) -> Self:
        """Start the broker in an interpreter of its own: slower, but safe where threads exist.

        Raises:
            Unavailable: as for `start`.
        """
        ours, theirs = _socket_pair()
        package = Path(__file__).parents[2]
        argv = [sys.executable, "-I", "-c", _APART, str(package), str(_SERVER_END)]
        with theirs:
            pid = os.posix_spawn(
                sys.executable,
                argv,
                dict(os.environ),
                file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), _SERVER_END)],
            )
        # Only this way of starting needs it.
        from mcp_toolserver.runtime.sandbox.apart import packet

        ours.send(packet(charter))
        return cls(ours, pid)

    @cached_property
    def proof(self) -> Proof:
        """What this machine was seen to keep. The first look waits until the broker has tried it.

        Raises:
            Unavailable: the broker is gone.
        """
        try:
            return heard(self._requests.recv(MAX_PROOF))
        except (OSError, ValueError):
            raise Unavailable("The process broker ended before it could prove its walls.") from None

    def spawn(self, request: Request, streams: Streams) -> socket.socket:
        """Ask for a program; what becomes of it is told on the socket returned, one JSON object a packet.

        Shutting down the sending side of that socket, or closing it, kills the program with all it started.

        Raises:
            Unavailable: the broker is gone, or too busy to take one more request.
        """
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError:
            raise Unavailable(
                "No process can be started: too many files are open. Try again later."
            ) from None
        with theirs:
            try:
                self._send(request, theirs.fileno(), streams)
            except OSError as error:
                ours.close()
                raise _explained(error) from None
        ours.setblocking(False)
        return ours

    def _send(self, request: Request, control: int, streams: Streams) -> None:
        body = os.memfd_create("request")
        with os.fdopen(body, "wb") as file:
            file.write(encode(request))
            file.flush()
            descriptors = (body, control, streams.cwd, streams.stdin, streams.stdout, streams.stderr)
            kind = COMMAND if isinstance(request, Script) else HELPER
            flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
            socket.send_fds(self._requests, [kind], descriptors, flags)

    def close(self) -> None:
        """End the broker; returns when it, and all it started, is gone."""
        if self._requests.fileno() < 0:
            return
        self._requests.close()
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            return


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    if sys.platform != "linux":
        raise Unavailable("Processes are started on Linux only.")
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def _explained(error: OSError) -> Unavailable:
    if isinstance(error, BlockingIOError):
        return Unavailable("Too many processes are being started at once. Try again later.")
    return Unavailable("No process can be started: the process broker has ended. Restart the server.")
