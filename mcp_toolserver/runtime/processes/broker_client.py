"""The server's hold on the broker: the process that starts every other one.

`start_broker` chooses the broker of this platform. It is called before any thread exists and before the large
imports, so that the broker stays small and forks safely. Standard library only.
"""

import contextlib
import errno
import importlib
import os
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NoReturn

from mcp_toolserver.errors import Unavailable
from mcp_toolserver.runtime.anonymous_file import opened_content
from mcp_toolserver.runtime.sandbox.broker import messages
from mcp_toolserver.runtime.sandbox.broker.fd_passing import NO_SIGNAL, receive
from mcp_toolserver.runtime.sandbox.broker.policy import BrokerPolicy, encode_policy
from mcp_toolserver.runtime.sandbox.layers.spec import TEMPORARY, Proof, decode_proof

if TYPE_CHECKING:
    from mcp_toolserver.runtime.processes.child import Child
    from mcp_toolserver.runtime.processes.connections import Connections

ANSWER_SECONDS = 5.0
"""How long an answer of the broker may take."""

LONGEST_PROOF = 1 << 18
"""Bytes; no packet is longer."""

SERVER_END = 3
"""The descriptor of its socket in a broker that has an interpreter of its own."""

_STANDALONE = """
import importlib, socket, sys
sys.path.insert(0, sys.argv[1])
from mcp_toolserver.runtime.sandbox.broker.policy import read_policy
requests = socket.socket(fileno=int(sys.argv[3]))
importlib.import_module(sys.argv[2]).serve(requests, read_policy())
"""


class Writers:
    """The running programs of sessions that may write, which plan mode suspends."""

    def __init__(self) -> None:
        self.is_held: Callable[[str], bool] = lambda _: False
        """Whether plan mode is in force for an owner."""
        self._owners: dict[Child, str] = {}

    def add(self, child: "Child", owner: str) -> None:
        """Add a program of the session of `owner`, which may be in plan mode by now."""
        self._owners = {one: whose for one, whose in self._owners.items() if one.exit is None}
        self._owners[child] = owner
        if self.is_held(owner):
            child.suspend(True)

    def settle(self) -> "list[Child]":
        """Begin to suspend what plan mode holds, and let the rest go on; returns what that changes."""
        changed = [
            child
            for child, owner in self._owners.items()
            if child.exit is None and child.is_suspended != self.is_held(owner)
        ]
        for child in changed:
            child.suspend(not child.is_suspended)
        return changed


async def nothing_hidden() -> tuple[str, ...]:
    """For a broker that got no rule."""
    return ()


async def no_backup(_: str) -> list[str]:
    """For a broker whose commands do not write in git folders."""
    return []


class Broker:
    """A running broker, here of Linux. It ends, with every command it started, when this end is closed or
    dies."""

    kind: ClassVar[int] = getattr(socket, "SOCK_SEQPACKET", 0)
    """Of sockets."""
    module: ClassVar[str] = "mcp_toolserver.runtime.sandbox.broker.main"
    """Has the `serve` of the broker. Only a fork imports it; the server is spared that."""

    def __init__(self, requests: socket.socket, pid: int, scratch: str) -> None:
        self._requests = requests
        self._scratch = scratch
        self._lock = threading.RLock()
        self._proof: Proof | None = None
        self.pid = pid
        """The process of the broker, or the one that forks it."""
        self.siblings = {requests}
        """The open ends of all brokers that the same process forks, this one's included."""
        self.waits = False
        """Whether it has yet to be forked."""
        self.writers = Writers()
        """What it started that may write."""
        self.connections: Connections | None = None
        """What the proxy of commands reports, where there is one."""
        self.hidden_git: Callable[[], Awaitable[Iterable[str]]] = nothing_hidden
        """Finds what `Script.hidden_git` has to be now. Raises: Unavailable: it cannot be found."""
        self.user = ""
        """See `Script.user`."""
        self.back_up: Callable[[str], Awaitable[list[str]]] = no_backup
        """See `GitBackups.before_command`; to be called before each command that may write in the roots."""

    @property
    def proof(self) -> Proof:
        """What this machine was seen to keep. The first look waits until the broker has tried it.

        Raises:
            Unavailable: the broker is gone.
        """
        with self._lock:
            if self._proof is None:
                line = b""
                try:
                    while not line.endswith(b"\n") and (piece := self._requests.recv(LONGEST_PROOF)):
                        line += piece
                    self._proof = decode_proof(line)
                except (OSError, ValueError):
                    raise Unavailable("The process broker ended before it could prove its sandbox.") from None
            return self._proof

    def wake(self) -> None:
        """Have a broker that waits be forked. Raises: Unavailable: what forks it is gone."""
        if self.waits:
            self.waits = False
            with _explained():
                self._requests.send(b"\0", NO_SIGNAL)

    def hide(self, patterns: Sequence[str]) -> None:
        """Have every command that starts from now on see nothing of what `patterns` match.

        The patterns are globs, relative to a root or absolute. Nothing takes them back.

        Raises:
            Unavailable: the broker is gone.
        """
        with _explained(), opened_content("patterns", messages.encode_patterns(patterns)) as body:
            self._send(messages.HIDE, "", (body,))

    def spawn(self, request: messages.Request, descriptors: tuple[int, int, int, int]) -> socket.socket:
        """Ask the broker to start a program; the returned socket receives its events, one JSON object per
        line.

        `descriptors` are its folder, standard input, output and error; the caller closes them. Shutting
        down the sending side of that socket, or closing it, kills the program with all it started.

        Raises:
            Unavailable: the broker is gone, or too busy to take one more request.
        """
        session = ""
        if isinstance(request, messages.Script):
            request, session = replace(request, user=self.user), request.session
        with _explained(), contextlib.ExitStack() as failing:
            ours, theirs = self.pair()
            failing.callback(ours.close)
            with theirs, opened_content("request", messages.encode(request)) as body:
                self._send(messages.REQUEST, session, (theirs.fileno(), body, *descriptors))
            failing.pop_all()
        ours.setblocking(False)
        return ours

    def temporary_folder(self, session: str) -> int | None:
        """Open the temporary folder that the commands of `session` share, which starts with this or with its
        first command; None if they share none. The caller closes it.

        Raises:
            Unavailable: the broker is gone, or too busy.
        """
        with _explained(), self._channel(messages.TEMPORARY, session) as ours:
            ours.settimeout(ANSWER_SECONDS)
            received = receive(ours)
        return received[0] if received else None

    def temporary_path(self, session: str) -> str:
        """The absolute path by which the commands of `session` know the temporary folder that they share."""
        own = self._scratch and os.path.join(self._scratch, messages.session_id(session).decode())
        return own or TEMPORARY

    def check(self) -> None:
        """Wait until the broker answers. Raises: Unavailable: it is gone, or too busy."""
        # Without a session there is no folder to pass, and nothing is made.
        self.temporary_folder("")

    def report_connections(self) -> socket.socket:
        """Have the proxy of commands report; returns the socket on which reports come, see
        `messages.CONNECTIONS`.

        Raises:
            Unavailable: the broker is gone.
        """
        with _explained():
            return self._channel(messages.CONNECTIONS, "")

    def end_session(self, session: str, *, when_unused: bool = False) -> None:
        """Let go of what the commands of `session` share: now, or once none of them runs unless another call
        comes before. It goes with the last of them."""
        with contextlib.suppress(OSError, Unavailable):
            self._send(messages.END_UNUSED if when_unused else messages.END, session, ())

    def close(self) -> None:
        """End the broker; returns when it, and all it started, is gone. Of siblings, the last that is closed
        waits for all of them."""
        if self._requests.fileno() >= 0:
            self.siblings.remove(self._requests)
            self._requests.close()
            if not self.siblings:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(self.pid, 0)

    @classmethod
    def pair(cls) -> tuple[socket.socket, socket.socket]:
        """The two ends of a channel to the broker."""
        return socket.socketpair(socket.AF_UNIX, cls.kind)

    def _channel(self, kind: bytes, session: str) -> socket.socket:
        """Send a message with one end of a channel; returns the other. Raises: as `_send`."""
        ours, theirs = self.pair()
        with theirs, contextlib.ExitStack() as failing:
            failing.callback(ours.close)
            self._send(kind, session, (theirs.fileno(),))
            failing.pop_all()
        return ours

    def _send(self, kind: bytes, session: str, descriptors: Sequence[int]) -> None:
        """Send a message, see `messages`; `descriptors` stay open here.

        Raises:
            OSError, Unavailable: the broker is gone, or too busy; or it ended early.
        """
        flags = NO_SIGNAL | (socket.MSG_DONTWAIT if kind == messages.REQUEST else 0)
        socket.send_fds(self._requests, [kind + messages.session_id(session)], descriptors, flags)


class PosixBroker(Broker):
    """The broker on a stream socket; see `runtime.sandbox.posix` for what it guarantees."""

    kind = socket.SOCK_STREAM
    module = "mcp_toolserver.runtime.sandbox.posix.broker"

    def _send(self, kind: bytes, session: str, descriptors: Sequence[int]) -> None:
        """Send a message, and wait until it is received: that takes a millisecond or two."""
        # One message at a time is on its way, nor may the answers to two be mixed up.
        with self._lock:
            # It comes before the first answer.
            _ = self.proof
            super()._send(kind, session, descriptors)
            self._requests.settimeout(ANSWER_SECONDS)
            try:
                received = self._requests.recv(len(messages.RECEIVED))
            except TimeoutError:
                # An answer that came later would be taken for that to another message.
                self._requests.shutdown(socket.SHUT_RDWR)
                received = b""
            if not received:
                raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def process_layer() -> Literal["linux", "posix"]:
    """Which of the two brokers starts the programs of this server."""
    return "linux" if sys.platform == "linux" else "posix"


def start_broker(broker_policy: BrokerPolicy) -> Broker:
    """Fork the broker from this process, which must have no other thread.

    Raises:
        Unavailable: this platform cannot fork or pass descriptors.
        RuntimeError: other threads exist; `start_standalone_broker` is for that case.
    """
    kind, broker_policy = _on_this_platform(broker_policy)
    ours, theirs = kind.pair()
    if (pid := _fork()) == 0:
        ours.close()
        _serve(kind, theirs, broker_policy)
    theirs.close()
    return kind(ours, pid, broker_policy.scratch)


def start_waiting_brokers(policies: Sequence[BrokerPolicy]) -> list[Broker]:
    """Fork one process that forks each of these brokers with its `wake`; few of them are needed soon.

    Raises:
        Unavailable, RuntimeError: as for `start_broker`.
    """
    planned = [_on_this_platform(one) for one in policies]
    if not planned:
        return []
    channels = [kind.pair() for kind, _ in planned]
    if (pid := _fork()) == 0:
        # Standard library only, as everything that a broker imports.
        from mcp_toolserver.runtime.sandbox.broker.fork_server import fork_on_demand

        ends = zip(channels, planned, strict=True)
        fork_on_demand({theirs: partial(_serve, kind, theirs, one) for (_, theirs), (kind, one) in ends})
    siblings = {ours for ours, _ in channels}
    brokers: list[Broker] = []
    for (ours, theirs), (kind, one) in zip(channels, planned, strict=True):
        theirs.close()
        broker = kind(ours, pid, one.scratch)
        broker.siblings, broker.waits = siblings, True
        brokers.append(broker)
    return brokers


def _fork() -> int:
    # Linux counts those that Python did not start, too.
    threads = os.listdir("/proc/self/task") if sys.platform == "linux" else threading.enumerate()
    if len(threads) > 1:
        raise RuntimeError("a broker cannot be forked from a process with several threads")
    return os.fork()


def _serve(kind: type[Broker], requests: socket.socket, broker_policy: BrokerPolicy) -> NoReturn:
    serve: Callable[[socket.socket, BrokerPolicy], NoReturn] = importlib.import_module(kind.module).serve
    serve(requests, broker_policy)


def start_standalone_broker(broker_policy: BrokerPolicy) -> Broker:
    """Start the broker in an interpreter of its own: slower, but safe where threads exist.

    Raises:
        Unavailable: as for `start_broker`.
    """
    kind, broker_policy = _on_this_platform(broker_policy)
    ours, theirs = kind.pair()
    with theirs, opened_content("policy", encode_policy(broker_policy)) as policy:
        pid = spawn_interpreter(kind.module, theirs.fileno(), policy)
    return kind(ours, pid, broker_policy.scratch)


def _on_this_platform(broker_policy: BrokerPolicy) -> tuple[type[Broker], BrokerPolicy]:
    if process_layer() == "linux":
        return Broker, broker_policy
    try:
        import fcntl
        import resource

        _ = fcntl, resource, os.fork, os.setsid
    except (ImportError, AttributeError):
        raise Unavailable(f"Processes cannot be started and watched on {sys.platform}.") from None
    # It needs one of them.
    from mcp_toolserver.runtime.sandbox.broker.temp_folder import FOLDER

    scratch = os.path.join(os.path.realpath(broker_policy.sandbox.state), FOLDER, os.urandom(16).hex())
    return PosixBroker, replace(broker_policy, scratch=scratch)


def spawn_interpreter(module: str, server_end: int, policy: int) -> int:
    """Run `serve` of `module` in a new interpreter, which gets `server_end`, and the file `policy` as its
    standard input; returns its process."""
    package = Path(__file__).parents[3]
    argv = [sys.executable, "-I", "-c", _STANDALONE, str(package), module, str(SERVER_END)]
    return os.posix_spawn(
        sys.executable,
        argv,
        dict(os.environ),
        # In this order: the number of the file may be that of the second.
        file_actions=[
            (os.POSIX_SPAWN_DUP2, policy, 0),
            (os.POSIX_SPAWN_DUP2, server_end, SERVER_END),
        ],
    )


@contextmanager
def _explained() -> Generator[None]:
    """Raises: Unavailable: what was done raised an OSError."""
    try:
        yield
    except OSError as error:
        raise unstartable(error) from None


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
