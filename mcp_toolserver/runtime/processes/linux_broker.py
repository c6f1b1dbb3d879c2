"""The broker on Linux, as the server sees it."""

import contextlib
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Self

from mcp_toolserver.errors import Unavailable
from mcp_toolserver.runtime.processes.broker_client import (
    ANSWER_SECONDS,
    Streams,
    Writers,
    nothing_hidden,
    spawn_interpreter,
    unstartable,
)
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
from mcp_toolserver.runtime.sandbox.broker.policy import BrokerPolicy
from mcp_toolserver.runtime.sandbox.layers.spec import Proof, decode_proof
from mcp_toolserver.runtime.sandbox.mounts.temporary import TEMPORARY as TEMPORARY_FOLDER

MAX_PROOF = 1 << 16


class LinuxBroker:
    """Implements `Broker` with what only the Linux kernel has. The socket to the broker keeps packets."""

    def __init__(self, requests: socket.socket, pid: int) -> None:
        self._requests = requests
        self._proof: Proof | None = None
        self.pid = pid
        self.writers = Writers()
        self.hidden_git: Callable[[], Awaitable[Iterable[str]]] = nothing_hidden

    @classmethod
    def start(cls, broker_policy: BrokerPolicy) -> Self:
        """Fork the broker from this process, which must have no other thread.

        Raises:
            Unavailable: this platform cannot fork, pass descriptors and adopt orphans.
            RuntimeError: other threads exist; `start_standalone` is for that case.
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
        with theirs:
            pid = spawn_interpreter("mcp_toolserver.runtime.sandbox.broker.standalone", theirs.fileno())
        # Only this way of starting needs it.
        from mcp_toolserver.runtime.sandbox.broker.standalone_policy import encode_policy

        ours.send(encode_policy(broker_policy))
        return cls(ours, pid)

    @property
    def proof(self) -> Proof:
        """See `Broker.proof`."""
        if self._proof is None:
            self._proof = self._receive_proof()
        return self._proof

    def _receive_proof(self) -> Proof:
        try:
            return decode_proof(self._requests.recv(MAX_PROOF))
        except (OSError, ValueError):
            raise Unavailable("The process broker ended before it could prove its sandbox.") from None

    def hide(self, patterns: Sequence[str]) -> None:
        """See `Broker.hide`."""
        body = os.memfd_create("patterns")
        with os.fdopen(body, "wb") as file:
            file.write(encode_patterns(patterns))
            file.flush()
            try:
                socket.send_fds(self._requests, [HIDE], [body], socket.MSG_NOSIGNAL)
            except OSError as error:
                raise unstartable(error) from None

    def spawn(self, request: Request, streams: Streams) -> socket.socket:
        """See `Broker.spawn`."""
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
        """See `Broker.temporary_folder`."""
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

    def temporary_path(self, session: str) -> str:
        """See `Broker.temporary_path`."""
        return TEMPORARY_FOLDER

    def check(self) -> None:
        """See `Broker.check`."""
        # Without a session there is no folder to pass, and nothing is made.
        self.temporary_folder("")

    def end_session(self, session: str, *, when_unused: bool = False) -> None:
        """See `Broker.end_session`."""
        with contextlib.suppress(Unavailable):
            self._send_packet((END_UNUSED if when_unused else END) + session_id(session), ())

    def _send_packet(self, message: bytes, descriptors: Sequence[int]) -> None:
        try:
            socket.send_fds(self._requests, [message], descriptors, socket.MSG_NOSIGNAL)
        except OSError as error:
            raise unstartable(error) from None

    def close(self) -> None:
        """See `Broker.close`."""
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
