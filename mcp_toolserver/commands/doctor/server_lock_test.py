"""Tests the lock of the server process: locks a fork and tries what a server must not be able to do."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from mcp_toolserver.capabilities.permissions import ServerLock
from mcp_toolserver.runtime.sandbox.layers.process_locks import LockError, lock_server
from mcp_toolserver.runtime.sandbox.layers.spec import Check

WORKSPACE_WRITE = "workspace-write"


@dataclass(frozen=True, kw_only=True)
class LockTestResult:
    """The result of the lock test."""

    layer: ServerLock = 0
    """What holds the process."""
    checks: tuple[Check, ...] = ()
    problem: str = ""
    """Why it cannot be locked."""

    @property
    def why_not(self) -> str:
        """Why the process is not held; empty if it is."""
        return self.problem or "; ".join(
            f'"{check.name}" does not hold' for check in self.checks if not check.held
        )

    @property
    def holds(self) -> bool:
        """Whether the process is held."""
        return not self.why_not


def try_lock(mode: str, *, network: bool = False) -> LockTestResult:
    """Lock a fork of this process, which must have one thread, and see what it can still do. With `network`
    it may connect, as the web tools do."""
    with TemporaryDirectory(prefix="mcp-toolserver-") as folder:
        base = os.path.realpath(folder)
        for name in ("state", "root", "outside"):
            os.mkdir(f"{base}/{name}")
        Path(base, "outside/kept").write_text("kept", encoding="utf-8")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            _run_in_fork(writing, mode, base, network=network)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
    if not said:
        return LockTestResult(problem="the process that was to be locked ended at once")
    message = json.loads(said)
    checks = tuple(Check(**check) for check in message["checks"])
    return LockTestResult(layer=message["layer"], checks=checks, problem=message["problem"])


def _run_in_fork(writing: int, mode: str, base: str, *, network: bool) -> NoReturn:
    try:
        os.write(writing, json.dumps(asdict(_tried(mode, base, network=network))).encode())
    finally:
        os._exit(0)


def _tried(mode: str, base: str, *, network: bool) -> LockTestResult:
    state, root = f"{base}/state", f"{base}/root"
    writes = (state, root) if mode == WORKSPACE_WRITE else (state,)
    try:
        layer = _lock(mode, (state, root), writes, network=network)
    except LockError as error:
        return LockTestResult(problem=str(error))
    checks: list[Check] = []
    for name, may, what in _attempts(mode, base, network=network):
        held = _works(what) == may
        checks.append(Check(name=name, held=held, seen="" if held else "it did not" if may else "it could"))
    return LockTestResult(layer=layer, checks=tuple(checks))


def _lock(mode: str, reads: tuple[str, ...], writes: tuple[str, ...], *, network: bool) -> ServerLock:
    if sys.platform != "darwin":
        return lock_server(mode=mode, reads=reads, writes=writes, network=network).abi
    from mcp_toolserver.runtime.sandbox.layers import seatbelt_server

    profile = seatbelt_server.ServerProfile(mode=mode, reads=reads, writes=writes, network=network)
    seatbelt_server.lock_server(profile)
    return "seatbelt"


def _attempts(mode: str, base: str, *, network: bool) -> Iterator[tuple[str, bool, Callable[[], object]]]:
    """Attempts: name, whether it must succeed, and the function."""
    writes = mode == WORKSPACE_WRITE
    root = "writes in the roots" if writes else "writes nothing in the roots"
    yield "writes in its own folder", True, lambda: _write(f"{base}/state/new")
    yield root, writes, lambda: _write(f"{base}/root/new")
    yield "writes nothing elsewhere", False, lambda: _write(f"{base}/outside/new")
    yield "reads nothing elsewhere", False, lambda: Path(base, "outside/kept").read_bytes()
    if not writes and sys.platform == "darwin":
        # Behind Seatbelt, what may be written may change its mode too.
        yield "changes the mode of no file in the roots", False, lambda: os.chmod(f"{base}/root", 0o700)
    elif not writes:
        yield "changes the mode of no file", False, lambda: os.chmod(f"{base}/state", 0o700)
    yield "starts no program", False, lambda: subprocess.run(["/bin/sh", "-c", ":"], check=True)
    if network:
        yield "listens to nobody", False, lambda: socket.create_server(("127.0.0.1", 0)).close()
    if sys.platform == "darwin":
        # Seatbelt judges what a socket does; the lock itself tries that it connects to nobody.
        return
    if network:
        yield "opens no local socket", False, lambda: socket.socket(socket.AF_UNIX).close()
    else:
        yield "opens no socket", False, lambda: socket.socket().close()


def _works(attempt: Callable[[], object]) -> bool:
    with suppress(OSError):
        attempt()
        return True
    return False


def _write(path: str) -> None:
    Path(path).write_text("new", encoding="utf-8")
