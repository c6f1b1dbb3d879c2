"""The server's hold on the broker: the process that starts every other one.

The launcher calls `Broker.start` before any thread exists and before the large imports, so that the broker
stays small and forks safely. Standard library only.
"""

import contextlib
import errno
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from mcp_toolserver.errors import Unavailable
from mcp_toolserver.runtime.sandbox.broker.fd_passing import receive
from mcp_toolserver.runtime.sandbox.broker.messages import (
    END,
    END_UNUSED,
    HIDE,
    REQUEST,
    TEMPORARY,
    Request,
    encode,
    encode_patterns,
    session_id,
    session_of,
)
from mcp_toolserver.runtime.sandbox.broker.policy import BrokerPolicy, Helper
from mcp_toolserver.runtime.sandbox.layers.spec import Proof, decode_proof

__all__ = ["Broker", "BrokerPolicy", "Helper", "Proof", "Streams"]

MAX_PROOF = 1 << 16

ANSWER_SECONDS = 5.0
"""How long an answer of the broker may take."""

_SERVER_END = 3
_STANDALONE = """
import sys
sys.path.insert(0, sys.argv[1])
from mcp_toolserver.runtime.sandbox.broker.standalone import main
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
    def start(cls, broker_policy: BrokerPolicy) -> Self:
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
            from mcp_toolserver.runtime.sandbox.broker.main import serve

            ours.close()
            serve(theirs, broker_policy)
        theirs.close()
        return cls(ours, pid)

    @classmethod
    def start_standalone(cls, broker_policy: BrokerPolicy) -> Self:
        """Start the broker in an interpreter of its own: slower, but safe where threads exist.

        Raises:
            Unavailable: as for `start`.
        """
        ours, theirs = _socket_pair()
        package = Path(__file__).parents[3]
        argv = [sys.executable, "-I", "-c", _STANDALONE, str(package), str(_SERVER_END)]
        with theirs:
            pid = os.posix_spawn(
                sys.executable,
                argv,
                dict(os.environ),
                file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), _SERVER_END)],
            )
        # Only this way of starting needs it.
        from mcp_toolserver.runtime.sandbox.broker.standalone import encode_policy

        ours.send(encode_policy(broker_policy))
        return cls(ours, pid)

    @cached_property
    def proof(self) -> Proof:
        """What this machine was seen to keep. The first look waits until the broker has tried it.

        Raises:
            Unavailable: the broker is gone.
        """
        try:
            return decode_proof(self._requests.recv(MAX_PROOF))
        except (OSError, ValueError):
            raise Unavailable("The process broker ended before it could prove its sandbox.") from None

    def hide(self, patterns: Sequence[str]) -> None:
        """Have every command that starts from now on see nothing of what `patterns` match.

        The patterns are globs, relative to a root or absolute. Nothing takes them back.

        Raises:
            Unavailable: the broker is gone.
        """
        body = os.memfd_create("patterns")
        with os.fdopen(body, "wb") as file:
            file.write(encode_patterns(patterns))
            file.flush()
            try:
                socket.send_fds(self._requests, [HIDE], [body], socket.MSG_NOSIGNAL)
            except OSError as error:
                raise unstartable(error) from None

    def spawn(self, request: Request, streams: Streams) -> socket.socket:
        """Ask the broker to start a program; the returned socket receives its events, one JSON object per
        packet.

        Shutting down the sending side of that socket, or closing it, kills the program with all it started.

        Raises:
            Unavailable: the broker is gone, or too busy to take one more request.
        """
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise unstartable(error) from None
        with theirs:
            try:
                self._send(request, theirs.fileno(), streams)
            except OSError as error:
                ours.close()
                raise unstartable(error) from None
        ours.setblocking(False)
        return ours

    def _send(self, request: Request, control: int, streams: Streams) -> None:
        body = os.memfd_create("request")
        with os.fdopen(body, "wb") as file:
            file.write(encode(request))
            file.flush()
            descriptors = (control, body, streams.cwd, streams.stdin, streams.stdout, streams.stderr)
            flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
            socket.send_fds(self._requests, [REQUEST, session_id(session_of(request))], descriptors, flags)

    def temporary_folder(self, session: str) -> int | None:
        """Open the temporary folder that the commands of `session` share, which starts with this or with its
        first command; None if they share none. The caller closes it.

        Raises:
            Unavailable: the broker is gone, or too busy.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            ours.settimeout(ANSWER_SECONDS)
            with theirs:
                self._send_packet(TEMPORARY + session_id(session), (theirs.fileno(),))
            try:
                received = receive(ours)
            except OSError as error:
                raise unstartable(error) from None
        return received[0] if received else None

    def check(self) -> None:
        """Wait until the broker answers.

        Raises:
            Unavailable: it is gone, or too busy.
        """
        # Without a session there is no folder to pass, and nothing is made.
        self.temporary_folder("")

    def end_session(self, session: str, *, when_unused: bool = False) -> None:
        """Let go of what the commands of `session` share: now, or once none of them runs unless another call
        comes before. It goes with the last of them."""
        with contextlib.suppress(Unavailable):
            self._send_packet((END_UNUSED if when_unused else END) + session_id(session), ())

    def _send_packet(self, message: bytes, descriptors: Sequence[int]) -> None:
        try:
            socket.send_fds(self._requests, [message], descriptors, socket.MSG_NOSIGNAL)
        except OSError as error:
            raise unstartable(error) from None

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


def unstartable(error: OSError) -> Unavailable:
    """Why no process can be started, in words for the caller."""
    match error.errno:
        case errno.EMFILE | errno.ENFILE:
            why = "too many files are open. Try again later."
        case errno.EAGAIN | errno.ENOBUFS | errno.ETOOMANYREFS:
            why = "too many processes are being started at once. Try again later."
        case errno.EPIPE | errno.ECONNRESET | errno.ENOTCONN | errno.EBADF:
            why = "the process broker has ended. Restart the server."
        case code:
            why = f"the system answers {errno.errorcode.get(code or 0, 'an unknown error')}. Try again later."
    return Unavailable(f"No process can be started: {why}")
