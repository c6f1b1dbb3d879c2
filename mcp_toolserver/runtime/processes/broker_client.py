"""The server's hold on the broker: the process that starts every other one.

`start_broker` chooses the broker of this platform. It is called before any thread exists and before the large
imports, so that the broker stays small and forks safely. Standard library only.
"""

import errno
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Literal, Protocol

from mcp_toolserver.errors import Unavailable
from mcp_toolserver.runtime.sandbox.broker.messages import Request
from mcp_toolserver.runtime.sandbox.broker.policy import BrokerPolicy, Helper
from mcp_toolserver.runtime.sandbox.layers.spec import Proof

if TYPE_CHECKING:
    from mcp_toolserver.runtime.processes.child import Child

__all__ = ["Broker", "BrokerPolicy", "Helper", "Proof", "Streams"]

ANSWER_SECONDS = 5.0
"""How long an answer of the broker may take."""

SERVER_END = 3
"""The descriptor of its socket in a broker that has an interpreter of its own."""

_STANDALONE = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
importlib.import_module(sys.argv[2]).main(int(sys.argv[3]))
"""


@dataclass(frozen=True, kw_only=True)
class Streams:
    """The descriptors that a program gets; they stay the caller's to close."""

    cwd: int
    stdin: int
    stdout: int
    stderr: int


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
        self.settle()

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


class Broker(Protocol):
    """A running broker. It ends, with every command it started, when this end is closed or dies."""

    @property
    def writers(self) -> Writers:
        """What it started that may write."""
        ...

    @property
    def pid(self) -> int:
        """The process of the broker."""
        ...

    hidden_git: Callable[[], Awaitable[Iterable[str]]]
    """Finds what `Script.hidden_git` has to be now. Raises: Unavailable: it cannot be found."""

    @property
    def proof(self) -> Proof:
        """What this machine was seen to keep. The first look waits until the broker has tried it.

        Raises:
            Unavailable: the broker is gone.
        """
        ...

    def hide(self, patterns: Sequence[str]) -> None:
        """Have every command that starts from now on see nothing of what `patterns` match.

        The patterns are globs, relative to a root or absolute. Nothing takes them back.

        Raises:
            Unavailable: the broker is gone.
        """
        ...

    def spawn(self, request: Request, streams: Streams) -> socket:
        """Ask the broker to start a program; the returned socket receives its events, one JSON object per
        line.

        Shutting down the sending side of that socket, or closing it, kills the program with all it started.

        Raises:
            Unavailable: the broker is gone, or too busy to take one more request.
        """
        ...

    def temporary_folder(self, session: str) -> int | None:
        """Open the temporary folder that the commands of `session` share, which starts with this or with its
        first command; None if they share none. The caller closes it.

        Raises:
            Unavailable: the broker is gone, or too busy.
        """
        ...

    def temporary_path(self, session: str) -> str:
        """The absolute path by which the commands of `session` know the temporary folder that they share."""
        ...

    def check(self) -> None:
        """Wait until the broker answers.

        Raises:
            Unavailable: it is gone, or too busy.
        """
        ...

    def end_session(self, session: str, *, when_unused: bool = False) -> None:
        """Let go of what the commands of `session` share: now, or once none of them runs unless another call
        comes before. It goes with the last of them."""
        ...

    def close(self) -> None:
        """End the broker; returns when it, and all it started, is gone."""
        ...


async def nothing_hidden() -> tuple[str, ...]:
    """For a broker that got no rule."""
    return ()


def process_layer() -> Literal["linux", "posix"]:
    """Which of the two brokers starts the programs of this server."""
    return "linux" if sys.platform == "linux" else "posix"


def start_broker(broker_policy: BrokerPolicy) -> Broker:
    """Fork the broker from this process, which must have no other thread.

    Raises:
        Unavailable: this platform cannot fork or pass descriptors.
        RuntimeError: other threads exist; `start_standalone_broker` is for that case.
    """
    if process_layer() == "linux":
        from mcp_toolserver.runtime.processes.linux_broker import LinuxBroker

        return LinuxBroker.start(broker_policy)
    _require_posix()
    from mcp_toolserver.runtime.processes.posix_broker import PosixBroker

    return PosixBroker.start(broker_policy)


def start_standalone_broker(broker_policy: BrokerPolicy) -> Broker:
    """Start the broker in an interpreter of its own: slower, but safe where threads exist.

    Raises:
        Unavailable: as for `start_broker`.
    """
    if process_layer() == "linux":
        from mcp_toolserver.runtime.processes.linux_broker import LinuxBroker

        return LinuxBroker.start_standalone(broker_policy)
    _require_posix()
    from mcp_toolserver.runtime.processes.posix_broker import PosixBroker

    return PosixBroker.start_standalone(broker_policy)


def _require_posix() -> None:
    try:
        import fcntl
        import resource

        _ = fcntl, resource, os.fork, os.setsid
    except (ImportError, AttributeError):
        raise Unavailable(f"Processes cannot be started and watched on {sys.platform}.") from None


def spawn_interpreter(module: str, server_end: int) -> int:
    """Run `main` of `module` in a new interpreter, which gets `server_end`; returns its process."""
    package = Path(__file__).parents[3]
    argv = [sys.executable, "-I", "-c", _STANDALONE, str(package), module, str(SERVER_END)]
    return os.posix_spawn(
        sys.executable,
        argv,
        dict(os.environ),
        file_actions=[(os.POSIX_SPAWN_DUP2, server_end, SERVER_END)],
    )


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
