"""Defers the imports for language servers until the first query."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp_toolserver.capabilities.call_scope import Scope
from mcp_toolserver.capabilities.code import CodeAnswer, CodeQuery, Languages
from mcp_toolserver.capabilities.search import Search
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.interactive import InteractiveProcess, start_interactive

if TYPE_CHECKING:
    from mcp_toolserver.runtime.lsp.pool import Pool, Project


class LanguageServers:
    """The language servers of this process, started by `broker`; None if they cannot be sandboxed.
    Executables are searched in `path`, but not inside `roots`. `search` is the fallback."""

    def __init__(
        self,
        broker: Broker | None,
        path: Sequence[str],
        roots: Sequence[str],
        search: Callable[[Workspace], Search] | None,
        *,
        may_hide: bool,
    ) -> None:
        self._broker = broker
        self._path = path
        self._roots = roots
        self._search = search
        self._may_hide = may_hide
        self._pool: Pool | None = None

    def for_call(self, workspace: Workspace, scope: Scope) -> Languages:
        """Return the queries of the owner in `scope` for the code in `workspace`."""
        return _CallLanguages(self, workspace, scope.owner)

    async def ask(self, query: CodeQuery, workspace: Workspace, owner: str) -> CodeAnswer:
        """See `Languages.ask`."""
        # Most processes never need these imports.
        from mcp_toolserver.runtime.lsp.code_queries import CodeQueries
        from mcp_toolserver.runtime.lsp.executables import search_folders
        from mcp_toolserver.runtime.lsp.pool import Pool

        if self._pool is None and self._broker is not None:
            self._pool = Pool(self._start, search_folders(self._path), self._roots)
        search = None if self._search is None else self._search(workspace)
        answers = CodeQueries(
            pool=self._pool, workspace=workspace, owner=owner, search=search, may_hide=self._may_hide
        )
        return await answers.ask(query)

    def forget(self, owner: str) -> None:
        """See `Pool.forget`."""
        if self._pool is not None:
            self._pool.forget(owner)

    async def aclose(self) -> None:
        """End all servers."""
        if self._pool is not None:
            await self._pool.aclose()

    async def _start(self, argv: Sequence[str], cwd: int, project: "Project") -> InteractiveProcess:
        assert self._broker is not None
        return await start_interactive(self._broker, argv, cwd=cwd, roots=project.roots, owner=project.owner)


@dataclass(frozen=True)
class _CallLanguages:
    """Implements `capabilities.Languages`."""

    servers: LanguageServers
    workspace: Workspace
    owner: str

    async def ask(self, query: CodeQuery) -> CodeAnswer:
        return await self.servers.ask(query, self.workspace, self.owner)
