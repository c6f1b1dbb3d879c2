"""Confines the server's own process on macOS with Seatbelt, and proves it by trying what is forbidden.

`sandbox_init` takes the profile as text (sandbox_init(3)); Apple marks it as deprecated and names no other
call for programs that are not applications. It holds every thread of the process and cannot be undone. The
broker was forked before, because what starts in a sandbox cannot enter another.
"""

import contextlib
import ctypes
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from mcp_toolserver.runtime.sandbox.broker.policy import READ_ONLY
from mcp_toolserver.runtime.sandbox.layers.process_locks import LockError, python_places
from mcp_toolserver.runtime.sandbox.layers.seatbelt import base, rule_of
from mcp_toolserver.text.file_names import lies_in

LIBRARY = "/usr/lib/libSystem.B.dylib"
"""It contains libsandbox; the loader finds it in the shared cache, also where no such file is."""

SYSTEM_PLACES = ("/usr", "/System", "/Library", "/bin", "/sbin", "/private/etc", "/private/var/run")
"""What the interpreter, its libraries and the lookup of names read."""


@dataclass(frozen=True, kw_only=True)
class ServerProfile:
    """What the server's process needs."""

    mode: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    network: bool
    port: int | None = None
    """Without `network`, the one TCP port of this machine that it connects to."""
    listens: bool = False
    """Whether it accepts connections on a socket that it has."""

    def rules(self) -> Iterator[str]:
        """The rules of its profile. Raises: LockError: a path cannot be written in a profile."""
        places = (*SYSTEM_PLACES, *python_places(), *self.reads)
        yield from base("basics", "start", "plain devices")
        yield "(allow file-read-metadata)"
        yield _on_paths("allow file-read*", places)
        yield _on_paths("allow file-read* file-write* file-link", self.writes)
        yield from base("setuid", "local sockets")
        if self.listens:
            yield from base("inbound")
        if self.network:
            yield from base("outbound", "name lookup")
        elif self.port is not None:
            yield f'(allow network-outbound (remote ip "localhost:{self.port}"))'


def lock_server(wanted: ServerProfile) -> None:
    """Confine this process, and try what the profile forbids.

    Raises:
        LockError: the process has other threads, macOS refuses the profile, or something forbidden works.
            In the last case the process stays confined as far as the profile holds.
    """
    if threading.active_count() != 1:
        raise LockError(
            f"{threading.active_count()} threads run where one must, because a fork prepares the test"
        )
    wanted = replace(wanted, reads=_real(wanted.reads), writes=_real(wanted.writes))
    profile = "\n".join(wanted.rules())
    with _grounds(wanted) as (outside, port):
        _apply(profile)
        tried = tuple((name, may, _works(attempt)) for name, may, attempt in _attempts(wanted, outside, port))
    failed = [(name, "it did" if works else "it did not") for name, may, works in tried if works != may]
    if failed:
        raise LockError("; ".join(f'Seatbelt does not hold that "{name}": {seen}' for name, seen in failed))


def _real(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(os.path.realpath, paths)))


def _on_paths(head: str, paths: Iterable[str]) -> str:
    return rule_of(head, (f"(subpath {_quoted(path)})" for path in dict.fromkeys(paths)))


def _quoted(path: str) -> str:
    """A string of the language, which is a Scheme (TinyScheme): a backslash escapes itself and the quote.

    Raises:
        LockError: it holds what cannot be in one for certain.
    """
    if any(ord(character) < 32 or ord(character) == 127 for character in path):
        raise LockError(f"{path!r} holds a control character, which a Seatbelt profile cannot name")
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _apply(profile: str) -> None:
    try:
        library = ctypes.CDLL(LIBRARY)
        init, free = library.sandbox_init, library.sandbox_free_error
    except (OSError, AttributeError) as error:
        raise LockError(f"this system has no sandbox_init ({error})") from None
    init.restype = ctypes.c_int
    init.argtypes = (ctypes.c_char_p, ctypes.c_uint64, ctypes.POINTER(ctypes.c_char_p))
    free.restype = None
    free.argtypes = (ctypes.c_char_p,)
    message = ctypes.c_char_p()
    if init(os.fsencode(profile), 0, ctypes.byref(message)) != 0:
        why = (message.value or b"no reason given").decode(errors="replace")
        raise LockError(f"sandbox_init refused the profile: {why.strip()}")


# --- proof -----------------------------------------------------------------------------------------------


@contextmanager
def _grounds(wanted: ServerProfile) -> Generator[tuple[str, int]]:
    """Something outside of what the process may reach: a folder with the file `kept` and a local socket that
    listens, or nothing where there is no such place, which a fork that is not confined removes; and the port
    where a socket of this machine listens."""
    own = (*wanted.reads, *wanted.writes)
    places = (place for place in _real(("/private/var/tmp", "/var/tmp", "/tmp")) if os.path.isdir(place))  # noqa: S108
    place = next((place for place in places if not any(lies_in(path, place) for path in own)), "")
    folder = tempfile.mkdtemp(prefix="mcp-toolserver-", dir=place) if place else ""
    with contextlib.ExitStack() as opened:
        if folder:
            Path(folder, "kept").write_text("kept", encoding="utf-8")
            opened.callback(_removed_by_fork(folder))
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        if folder:
            waiting = opened.enter_context(socket.socket(socket.AF_UNIX))
            waiting.bind(f"{folder}/socket")
            waiting.listen()
        yield folder, listener.getsockname()[1]


def _removed_by_fork(folder: str) -> Callable[[], None]:
    """Start a process that removes `folder` when the returned function is called, or when this one ends."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:  # pragma: no cover  # a fork that ends without a report
        try:
            os.close(writing)
            os.read(reading, 1)
            for name in os.listdir(folder):
                os.unlink(f"{folder}/{name}")
            os.rmdir(folder)
        finally:
            os._exit(0)
    os.close(reading)

    def remove() -> None:
        os.close(writing)
        os.waitpid(pid, 0)

    return remove


def _attempts(
    wanted: ServerProfile, outside: str, port: int
) -> Iterator[tuple[str, bool, Callable[[], object]]]:
    """What is tried: its name, whether it must work, and the attempt."""
    state, roots = wanted.writes[0], wanted.reads
    yield "the server writes in its own folder", True, lambda: _create(f"{state}/lock-test-{os.getpid()}")
    if wanted.mode == READ_ONLY:
        for root in (path for path in roots if os.path.isdir(path) and not lies_in(state, path)):
            place = f"{root}/.mcp-toolserver-lock-test-{os.getpid()}"
            yield "the server writes nothing in what it only reads", False, lambda place=place: _create(place)
    if outside:
        kept, at = f"{outside}/kept", f"{outside}/socket"
        yield "the server writes nothing elsewhere", False, lambda: _create(f"{outside}/new")
        yield "the server changes nothing elsewhere", False, lambda: os.chmod(kept, 0o600)
        yield "the server reads nothing elsewhere", False, lambda: os.close(os.open(kept, os.O_RDONLY))
        yield "the server renames nothing elsewhere", False, lambda: os.rename(kept, f"{kept}-moved")
        yield "the server reaches no local socket", False, lambda: _connect(socket.AF_UNIX, at)
    yield "the server starts no program", False, _start
    yield "the server makes no process", False, _fork
    here = ("127.0.0.1", 0)
    yield "the server opens no socket for others", False, lambda: socket.create_server(here).close()
    if not wanted.network and wanted.port != port:
        yield "the server connects to nobody", False, lambda: _connect(socket.AF_INET, (here[0], port))
    yield "the server signals no other process", False, lambda: os.kill(os.getppid(), 0)


def _works(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return False
    return True


def _create(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    os.unlink(path)


def _connect(family: int, address: str | tuple[str, int]) -> None:
    with contextlib.closing(socket.socket(family)) as client:
        client.connect(address)


def _start() -> None:
    os.waitpid(os.posix_spawn("/bin/sh", ("/bin/sh", "-c", ":"), {}), 0)


def _fork() -> None:
    pid = os.fork()
    if pid == 0:  # pragma: no cover  # only where the sandbox fails
        os._exit(0)
    os.waitpid(pid, 0)
