"""Questions about code, before there is one: what answers them is imported for the first."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp_toolserver.capabilities.languages import CodeAnswer, CodeQuery, Languages
from mcp_toolserver.capabilities.search import Search
from mcp_toolserver.runtime.broker import Broker
from mcp_toolserver.runtime.dialogue import Dialogue, converse
from mcp_toolserver.runtime.fs import Workspace

if TYPE_CHECKING:
    from mcp_toolserver.runtime.lsp.pool import Pool


class LanguageServers:
    """The language servers of this server, started by `broker`; None where they cannot be confined. Programs
    are looked for in `path`, but not in `roots`. `search` stands in for them.
    """

    def __init__(
        self,
        broker: Broker | None,
        path: Sequence[str],
        roots: Sequence[str],
        search: Callable[[Workspace], Search] | None,
        *,
        hiding: bool,
    ) -> None:
        self._broker = broker
        self._path = path
        self._roots = roots
        self._search = search
        self._hiding = hiding
        self._pool: Pool | None = None

    def within(self, workspace: Workspace) -> Languages:
        """What is known of the code in `workspace`."""
        return _Within(self, workspace)

    async def ask(self, query: CodeQuery, workspace: Workspace) -> CodeAnswer:
        """See `Languages.ask`."""
        # A server that is never asked about code starts without these.
        from mcp_toolserver.runtime.lsp.languages import CodeAnswers
        from mcp_toolserver.runtime.lsp.pool import Pool
        from mcp_toolserver.runtime.lsp.programs import places

        if self._pool is None and self._broker is not None:
            self._pool = Pool(self._start, places(self._path), self._roots)
        search = None if self._search is None else self._search(workspace)
        answers = CodeAnswers(pool=self._pool, workspace=workspace, search=search, hiding=self._hiding)
        return await answers.ask(query)

    async def aclose(self) -> None:
        """End them all."""
        if self._pool is not None:
            await self._pool.aclose()

    async def _start(self, argv: Sequence[str], cwd: int) -> Dialogue:
        assert self._broker is not None
        return await converse(self._broker, argv, cwd=cwd)


@dataclass(frozen=True)
class _Within:
    """Implements `capabilities.Languages`."""

    servers: LanguageServers
    workspace: Workspace

    async def ask(self, query: CodeQuery) -> CodeAnswer:
        return await self.servers.ask(query, self.workspace)
