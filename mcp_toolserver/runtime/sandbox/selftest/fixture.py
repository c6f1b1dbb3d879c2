"""The files that the self-test works on: a root, a folder outside of it, secrets, a listening socket."""

import contextlib
import os
import shutil
import socket
import stat
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from mcp_toolserver.runtime.sandbox.layers.spec import SandboxSpec

Seen = Mapping[str, tuple[int, int, int, bytes]]
"""By path: mode, time of change, of what it holds and of what it is, and what it holds."""


@dataclass(frozen=True, kw_only=True)
class Fixture:
    """The paths of the fixture."""

    base: str
    token: str
    """Written in the root: who says it has read there."""
    secret: str
    """Written where no command may read."""
    listener: socket.socket | None
    """None where this machine has no loopback."""
    pipe: int
    """Reads from the named pipe `outside/pipe`, as a program outside does."""
    local: socket.socket | None
    """Listens at `outside-socket`; None where no such socket can be made."""
    hidden: tuple[str, ...]
    """The names of what no command may read."""

    def at(self, name: str) -> str:
        """The path of a file in the fixture."""
        return f"{self.base}/{name}"

    @property
    def port(self) -> int:
        """Where the listener listens, or 0."""
        return self.listener.getsockname()[1] if self.listener else 0

    def sandbox(self, sandbox: SandboxSpec) -> SandboxSpec:
        """`sandbox` with the paths of this fixture, and all protected names."""
        hidden = tuple(map(self.at, self.hidden))
        paths = {"roots": (self.at("root"),), "state": self.at("state"), "hidden": hidden}
        return replace(sandbox, **paths, writable_names=())

    def seen(self) -> Seen:
        """All that is there."""
        return {
            os.path.join(top, name).removeprefix(f"{self.base}/"): _state_of(os.path.join(top, name))
            for top, folders, files in os.walk(self.base)
            for name in (*folders, *files)
        }

    def piped(self) -> bool:
        """Whether something was written into the named pipe."""
        try:
            return os.read(self.pipe, 1) != b""
        except BlockingIOError:
            return False

    def visited(self, *, local: bool = False) -> bool:
        """Whether a client connected."""
        listener = self.local if local else self.listener
        if listener is None:
            return False
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return False
        return True


@contextmanager
def make_fixture(state: str, *, hides_in_root: bool = False) -> Generator[Fixture]:
    """Create a fixture in the server's own folder, which no command sees, or else among the temporary files.

    With `hides_in_root` there is also a hidden file in the root, and a local socket outside of it.

    Raises:
        OSError: it cannot be made.
    """
    with contextlib.ExitStack() as undo:
        base = _private_folder(state)
        undo.callback(shutil.rmtree, base, ignore_errors=True)
        os.mkdir(f"{base}/outside", 0o700)
        os.mkfifo(f"{base}/outside/pipe", 0o600)
        pipe = os.open(f"{base}/outside/pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        undo.callback(os.close, pipe)
        fixture = Fixture(
            base=base,
            token=_random_name(),
            secret=_random_name(),
            listener=_listener(undo, socket.AF_INET, ("127.0.0.1", 0)),
            pipe=pipe,
            local=_listener(undo, socket.AF_UNIX, f"{base}/outside-socket") if hides_in_root else None,
            hidden=("hidden", "root/closed/secret") if hides_in_root else ("hidden",),
        )
        _fill(fixture)
        yield fixture


def _state_of(path: str) -> tuple[int, int, int, bytes]:
    found = os.lstat(path)
    content = Path(path).read_bytes() if stat.S_ISREG(found.st_mode) else b""
    return found.st_mode, found.st_mtime_ns, found.st_ctime_ns, content


def _private_folder(state: str) -> str:
    for place in (state, "/var/tmp", "/tmp"):  # noqa: S108  # a name nobody can guess, for this user alone
        folder = f"{place}/selftest-{_random_name()}"
        with contextlib.suppress(OSError):
            os.makedirs(place, mode=0o700, exist_ok=True)
            os.mkdir(folder, 0o700)
            return os.path.realpath(folder)
    raise OSError("no private folder can be made to test the sandbox in")


def _random_name() -> str:
    return os.urandom(8).hex()


def _listener(
    undo: contextlib.ExitStack, family: int, address: str | tuple[str, int]
) -> socket.socket | None:
    """A socket that `undo` closes; None where none can be made, or its path is too long."""
    listener = None
    try:
        listener = undo.enter_context(socket.socket(family))
        listener.bind(address)
        listener.listen()
    except OSError:
        return None
    listener.setblocking(False)
    return listener


def _fill(fixture: Fixture) -> None:
    in_root = ("root/closed", "root/sub") if len(fixture.hidden) > 1 else ()
    for folder in ("root", "root/.git", "root/.git/hooks", "state", *in_root):
        os.mkdir(fixture.at(folder), 0o700)
    contents = {
        "root/kept": fixture.token,
        "root/.git/HEAD": "ref: refs/heads/main",
        "root/.git/config": "[core]",
        "root/.git/hooks/pre-commit": "#!/bin/sh",
        "outside/kept": "kept",
        "state/secret": fixture.secret,
        **dict.fromkeys(fixture.hidden, fixture.secret),
    }
    for name, content in contents.items():
        Path(fixture.at(name)).write_text(f"{content}\n", encoding="utf-8")
