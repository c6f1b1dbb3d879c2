"""The broker on POSIX systems other than Linux, as the server sees it."""

import contextlib
import errno
import json
import os
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from threading import RLock
from typing import Self

from mcp_toolserver.errors import Unavailable
from mcp_toolserver.runtime.anonymous_file import anonymous_file
from mcp_toolserver.runtime.processes.broker_client import (
    ANSWER_SECONDS,
    Streams,
    Writers,
    nothing_hidden,
    spawn_interpreter,
    unstartable,
)
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
from mcp_toolserver.runtime.sandbox.posix.folders import broker_folder
from mcp_toolserver.runtime.sandbox.posix.frames import RECEIVED, Frame, send_frame

_ROOM = 1 << 16


class PosixBroker:
    """Implements `Broker` on a stream socket; see `runtime.sandbox.posix` for what it guarantees."""

    def __init__(self, requests: socket.socket, pid: int, folder: str) -> None:
        self._requests = requests
        self._proof: Proof | None = None
        self._folder = folder
        self._sending = RLock()
        self.pid = pid
        self.writers = Writers()
        self.hidden_git: Callable[[], Awaitable[Iterable[str]]] = nothing_hidden

    @classmethod
    def start(cls, broker_policy: BrokerPolicy) -> Self:
        """Fork the broker from this process, which must have no other thread.

        Raises:
            RuntimeError: other threads exist; `start_standalone` is for that case.
        """
        if threading.active_count() > 1:
            raise RuntimeError("a broker cannot be forked from a process with several threads")
        ours, theirs = socket.socketpair()
        folder = _new_folder(broker_policy)
        pid = os.fork()
        if pid == 0:
            # Only the fork needs these modules; the server is spared their import.
            from mcp_toolserver.runtime.sandbox.posix.broker import serve

            ours.close()
            serve(theirs, broker_policy, folder)
        theirs.close()
        return cls(ours, pid, folder)

    @classmethod
    def start_standalone(cls, broker_policy: BrokerPolicy) -> Self:
        """Start the broker in an interpreter of its own: slower, but safe where threads exist."""
        # Only this way of starting needs it.
        from mcp_toolserver.runtime.sandbox.broker.standalone_policy import encode_policy

        ours, theirs = socket.socketpair()
        folder = _new_folder(broker_policy)
        with theirs:
            pid = spawn_interpreter("mcp_toolserver.runtime.sandbox.posix.standalone", theirs.fileno())
        ours.sendall(json.dumps([folder, encode_policy(broker_policy).decode()]).encode() + b"\n")
        return cls(ours, pid, folder)

    @property
    def proof(self) -> Proof:
        """See `Broker.proof`."""
        with self._sending:
            if self._proof is None:
                self._proof = self._receive_proof()
            return self._proof

    def _receive_proof(self) -> Proof:
        line = b""
        try:
            while not line.endswith(b"\n") and (piece := self._requests.recv(_ROOM)):
                line += piece
            return decode_proof(line)
        except (OSError, ValueError):
            raise Unavailable("The process broker ended before it could prove its sandbox.") from None

    def hide(self, patterns: Sequence[str]) -> None:
        """See `Broker.hide`."""
        with contextlib.ExitStack() as opened:
            try:
                body = _file("patterns", encode_patterns(patterns), opened)
                self._send(Frame(kind=HIDE), (body,))
            except OSError as error:
                raise unstartable(error) from None

    def spawn(self, request: Request, streams: Streams) -> socket.socket:
        """See `Broker.spawn`."""
        with contextlib.ExitStack() as opened, contextlib.ExitStack() as failing:
            try:
                ours, theirs = socket.socketpair()
                opened.callback(theirs.close)
                failing.callback(ours.close)
                body = _file("request", encode(request), opened)
                descriptors = (
                    theirs.fileno(),
                    body,
                    streams.cwd,
                    streams.stdin,
                    streams.stdout,
                    streams.stderr,
                )
                self._send(Frame(kind=REQUEST, session=session_id(session_of(request))), descriptors)
            except OSError as error:
                raise unstartable(error) from None
            failing.pop_all()
        ours.setblocking(False)
        return ours

    def temporary_folder(self, session: str) -> int | None:
        """See `Broker.temporary_folder`."""
        try:
            ours, theirs = socket.socketpair()
            with ours:
                ours.settimeout(ANSWER_SECONDS)
                with theirs:
                    self._send(Frame(kind=TEMPORARY, session=session_id(session)), (theirs.fileno(),))
                _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
        except OSError as error:
            raise unstartable(error) from None
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        return descriptors[0] if descriptors else None

    def temporary_path(self, session: str) -> str:
        """See `Broker.temporary_path`."""
        return os.path.join(self._folder, session_id(session).decode())

    def check(self) -> None:
        """See `Broker.check`."""
        # Without a session there is no folder to pass, and nothing is made.
        self.temporary_folder("")

    def end_session(self, session: str, *, when_unused: bool = False) -> None:
        """See `Broker.end_session`."""
        with contextlib.suppress(OSError, Unavailable):
            self._send(Frame(kind=END_UNUSED if when_unused else END, session=session_id(session)), ())

    def close(self) -> None:
        """See `Broker.close`."""
        if self._requests.fileno() < 0:
            return
        self._requests.close()
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            return

    def _send(self, frame: Frame, descriptors: Sequence[int]) -> None:
        """Send a frame, and wait until it is received: that takes a millisecond or two.

        Raises:
            OSError: the broker is gone, or too busy.
            Unavailable: it ended early.
        """
        # Frames of two threads must not mix, nor the answers to them.
        with self._sending:
            # It comes before the first answer.
            _ = self.proof
            send_frame(self._requests, frame, descriptors)
            self._requests.settimeout(ANSWER_SECONDS)
            try:
                received = self._requests.recv(len(RECEIVED))
            except TimeoutError:
                # An answer that came later would be taken for that to another frame.
                self._requests.shutdown(socket.SHUT_RDWR)
                received = b""
            if not received:
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def _new_folder(broker_policy: BrokerPolicy) -> str:
    """The path of a folder for temporary files, which the broker creates if it needs one."""
    return broker_folder(broker_policy.sandbox.state, secrets.token_hex(16))


def _file(name: str, content: bytes, opened: contextlib.ExitStack) -> int:
    """A file without a name that holds `content`."""
    file = anonymous_file(name)
    opened.callback(os.close, file)
    with os.fdopen(file, "wb", closefd=False) as stream:
        stream.write(content)
    return file
