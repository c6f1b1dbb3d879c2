"""Searches of real folders with both engines, through a real broker."""

import os
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from mcp_toolserver.capabilities import FileQuery, FoundFiles, FoundLines, LineQuery, SearchMode
from mcp_toolserver.runtime.broker import Broker
from mcp_toolserver.runtime.fs import Workspace
from mcp_toolserver.runtime.launch import Exit, Launcher, Running
from mcp_toolserver.runtime.programs import Programs
from mcp_toolserver.runtime.search import DEADLINE, Ripgrep
from mcp_toolserver.runtime.search_programs import find_ripgrep, helpers
from tests.processes import broker

RIPGREP = find_ripgrep(())
"""A dependency, so it is there."""

ENGINES = {"ripgrep": RIPGREP, "stand-in": None}
NOBODY = 65534


@contextmanager
def search_broker() -> Generator[Broker]:
    """A broker that starts both engines and nothing else."""
    assert RIPGREP is not None
    with broker("read-only", *helpers(RIPGREP), *helpers(None)) as started:
        yield started


@dataclass(frozen=True, kw_only=True)
class Grounds:
    """A folder to search, and one beside it that is out of bounds."""

    root: Path
    outside: Path
    launcher: Launcher
    engine: str | None
    more_roots: Sequence[Path] = ()
    hides: Callable[[tuple[str, ...]], bool] | None = None
    deadline: float = DEADLINE

    def write(self, **files: str) -> None:
        """Files by path, with `__` for a slash and `_dot_` for a dot."""
        for name, content in files.items():
            self.put(name.replace("__", "/").replace("_dot_", "."), content)

    def put(self, name: str, content: str | bytes = "") -> Path:
        """One file beneath the root, with its folders."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    @property
    def search(self) -> Ripgrep:
        return Ripgrep(
            self.launcher,
            self.workspace,
            program=self.engine,
            hiding=self.hides is not None,
            deadline=self.deadline,
        )

    @property
    def workspace(self) -> Workspace:
        hides = self.hides or (lambda _: False)
        return Workspace([str(self.root), *map(str, self.more_roots)], hides=hides)

    async def lines(
        self,
        pattern: str,
        mode: SearchMode = "content",
        *,
        path: str = ".",
        limit: int = 0,
        **options: object,
    ) -> FoundLines:
        """Search for lines."""
        at = self.workspace.canonical(path)
        query = LineQuery(pattern=pattern, path=at, mode=mode, limit=limit, **options)  # type: ignore[arg-type]
        with anyio.fail_after(60):
            return await self.search.lines(query)

    async def shown(self, pattern: str, mode: SearchMode = "content", **options: object) -> list[str]:
        """The lines of the answer."""
        return (await self.lines(pattern, mode, **options)).text.splitlines()  # type: ignore[arg-type]

    async def files(self, pattern: str, *, path: str = ".", limit: int = 1000, **options: bool) -> FoundFiles:
        """Search for files."""
        at = self.workspace.canonical(path)
        with anyio.fail_after(60):
            return await self.search.files(FileQuery(pattern=pattern, path=at, limit=limit, **options))

    async def names(self, pattern: str, **options: bool) -> list[str]:
        """The files found, by name."""
        return sorted((await self.files(pattern, **options)).files)


@dataclass
class Unprivileged:
    """Starts programs as somebody whom a file's mode can keep out, which root is not."""

    complaints: bytes = field(default=b"", init=False)

    def open(
        self, argv: Sequence[str], *, cwd: int, stdin: int | None = None, timeout: float
    ) -> AbstractAsyncContextManager[Running]:
        return self._opened(argv, cwd)

    @asynccontextmanager
    async def _opened(self, argv: Sequence[str], cwd: int) -> AsyncGenerator[Running]:
        who = NOBODY if os.geteuid() == 0 else None
        done = await anyio.run_process(
            list(argv), cwd=f"/proc/self/fd/{cwd}", check=False, user=who, group=who, stdin=-3
        )
        yield Ended(done.stdout, done.stderr, done.returncode)


@dataclass
class Ended:
    """A program that has run."""

    output: bytes
    errors: bytes
    status: int

    async def chunks(self) -> AsyncGenerator[bytes]:
        yield self.output

    async def wait(self) -> Exit:
        return Exit(status=self.status, reason="exited")

    def complaints(self) -> bytes:
        return self.errors


@dataclass
class Interfering:
    """Does something right after a program has printed all it found, before anybody looks at it."""

    launcher: Launcher
    act: Callable[[], object]

    def open(
        self, argv: Sequence[str], *, cwd: int, stdin: int | None = None, timeout: float
    ) -> AbstractAsyncContextManager[Running]:
        return self._opened(self.launcher.open(argv, cwd=cwd, stdin=stdin, timeout=timeout))

    @asynccontextmanager
    async def _opened(self, opening: AbstractAsyncContextManager[Running]) -> AsyncGenerator[Running]:
        async with opening as running:
            yield Interfered(running, self.act)


@dataclass
class Interfered:
    """What `Interfering` gives."""

    running: Running
    act: Callable[[], object]

    async def chunks(self) -> AsyncGenerator[bytes]:
        async for chunk in self.running.chunks():
            yield chunk
        self.act()

    async def wait(self) -> Exit:
        return await self.running.wait()

    def complaints(self) -> bytes:
        return self.running.complaints()


@dataclass
class LedAway:
    """Starts programs in another folder than asked, as if they had been led there on the way."""

    launcher: Launcher
    folder: Path

    def open(
        self, argv: Sequence[str], *, cwd: int, stdin: int | None = None, timeout: float
    ) -> AbstractAsyncContextManager[Running]:
        return self._opened(argv, timeout)

    @asynccontextmanager
    async def _opened(self, argv: Sequence[str], timeout: float) -> AsyncGenerator[Running]:
        away = os.open(self.folder, os.O_RDONLY)
        try:
            async with self.launcher.open(argv, cwd=away, timeout=timeout) as running:
                yield running
        finally:
            os.close(away)


def programs(started: Broker) -> Programs:
    """The launcher that the server uses."""
    return Programs(started)
