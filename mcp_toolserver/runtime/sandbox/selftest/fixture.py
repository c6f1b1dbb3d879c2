"""The files that the self-test works on: a root, a folder outside of it, secrets, a listening socket."""

import contextlib
import os
import socket
import stat
from collections.abc import Callable, Generator, Mapping
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

    def at(self, name: str) -> str:
        """The path of a file in the fixture."""
        return f"{self.base}/{name}"

    @property
    def port(self) -> int:
        """Where the listener listens, or 0."""
        return self.listener.getsockname()[1] if self.listener else 0

    def sandbox(self, sandbox: SandboxSpec) -> SandboxSpec:
        """`sandbox` with the paths of this fixture, and all protected names."""
        paths = {"roots": (self.at("root"),), "state": self.at("state"), "hidden": (self.at("hidden"),)}
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

    def visited(self) -> bool:
        """Whether a client connected."""
        if self.listener is None:
            return False
        try:
            self.listener.accept()[0].close()
        except BlockingIOError:
            return False
        return True


@contextmanager
def make_fixture(state: str) -> Generator[Fixture]:
    """Create a fixture in the server's own folder, which no command sees, or else among the temporary files.

    Raises:
        OSError: it cannot be made.
    """
    base = _private_folder(state)
    listener, pipe = _listener(), -1
    try:
        os.mkdir(f"{base}/outside", 0o700)
        pipe = _pipe(f"{base}/outside/pipe")
        fixture = Fixture(
            base=base, token=_random_name(), secret=_random_name(), listener=listener, pipe=pipe
        )
        _fill(fixture)
        yield fixture
    finally:
        if pipe >= 0:
            os.close(pipe)
        if listener:
            listener.close()
        _remove(base)


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


def _listener() -> socket.socket | None:
    with contextlib.ExitStack() as undo:
        try:
            listener = undo.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            listener.listen()
        except OSError:
            return None
        listener.setblocking(False)
        undo.pop_all()
        return listener


def _pipe(path: str) -> int:
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def _fill(fixture: Fixture) -> None:
    for folder in ("root", "root/.git", "root/.git/hooks", "state"):
        os.mkdir(fixture.at(folder), 0o700)
    contents = {
        "root/kept": fixture.token,
        "root/.git/HEAD": "ref: refs/heads/main",
        "root/.git/config": "[core]",
        "root/.git/hooks/pre-commit": "#!/bin/sh",
        "outside/kept": "kept",
        "state/secret": fixture.secret,
        "hidden": fixture.secret,
    }
    for name, content in contents.items():
        file = os.open(fixture.at(name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        os.write(file, f"{content}\n".encode())
        os.close(file)


def _remove(base: str) -> None:
    for top, folders, files in os.walk(base, topdown=False):
        for name in files:
            _ignoring_errors(os.unlink, f"{top}/{name}")
        for name in folders:
            path = f"{top}/{name}"
            _ignoring_errors(os.unlink if os.path.islink(path) else os.rmdir, path)
    _ignoring_errors(os.rmdir, base)


def _ignoring_errors(remove: Callable[[str], None], path: str) -> None:
    with contextlib.suppress(OSError):
        remove(path)
