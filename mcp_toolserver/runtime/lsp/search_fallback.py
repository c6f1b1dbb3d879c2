"""Answers queries by a text search when no language server is available: lines that look like definitions,
and lines that contain the name."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mcp_toolserver.capabilities.code import CodeAnswer, CodePlace, CodeQuery
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.search import LineQuery
from mcp_toolserver.errors import InvalidInput, Unavailable
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.lsp.documents import read_text
from mcp_toolserver.runtime.search.search import Ripgrep as Search
from mcp_toolserver.text.code.languages import CODE_GLOB, code_glob
from mcp_toolserver.text.code.positions import (
    asked_place,
    code_lines,
    definition_pattern,
    definitions,
    symbol_at,
    symbol_starts,
)

_FOUND = re.compile(r"(?P<path>.+?):(?P<line>[0-9]+):(?P<text>.*)", re.DOTALL)
MOST_TEXT = 300
"""Characters of a line that are shown."""

_SHOWN_OF_DEFINITION = 6
"""Lines of a definition shown as hover text."""

_MOST_LINES = 500
"""Found lines that are looked at."""


@dataclass(frozen=True, kw_only=True)
class SearchFallback:
    """Answers queries from the text alone."""

    workspace: Workspace
    search: Search | None
    why: str
    """Why no language server is available."""

    async def answer(self, query: CodeQuery) -> CodeAnswer:
        """Answer a query.

        Raises:
            Unavailable: a search cannot answer it.
            InvalidInput, NotFound, Denied: as for any query.
        """
        match query.operation:
            case "documentSymbol":
                lines = await self._lines(query.path)
                places = [
                    _place(query.path, one.line, one.index, lines[one.line]) for one in definitions(lines)
                ]
                return self._answer(places[: query.limit], len(places))
            case "workspaceSymbol":
                if not query.symbol:
                    raise InvalidInput(
                        f"{self.why} To search for symbols without one, give `query`: a part of a name."
                    )
                return await self._definitions(query, rf"(?i:\w*{re.escape(query.symbol)}\w*)")
            case "goToDefinition":
                return await self._definitions(query, re.escape(await self._symbol(query)))
            case "findReferences":
                symbol = await self._symbol(query)
                pattern = rf"\b{re.escape(symbol)}\b"
                return await self._search(query, pattern, lambda line: [*symbol_starts(line, symbol), 0][0])
            case "hover":
                return await self._hover(query)
            case _:
                raise Unavailable(
                    f"{self.why} {query.operation} needs one; goToDefinition, findReferences, hover and the "
                    "symbol operations work without."
                )

    async def _definitions(self, query: CodeQuery, name: str) -> CodeAnswer:
        def index(line: str) -> int | None:
            return next((one.index for one in definitions([line], name)), None)

        return await self._search(query, definition_pattern(name), index)

    async def _hover(self, query: CodeQuery) -> CodeAnswer:
        found = await self._definitions(query, re.escape(await self._symbol(query)))
        if not found.places:
            return found
        first = found.places[0]
        lines = await self._lines(self.workspace.canonical(first.path))
        visible = lines[first.line - 1 : first.line - 1 + _SHOWN_OF_DEFINITION]
        text = "\n".join((f"{first.path}:{first.line}", *(line[:MOST_TEXT] for line in visible)))
        return self._answer((), 0, text)

    async def _symbol(self, query: CodeQuery) -> str:
        """Return the name that is asked about."""
        if query.symbol and query.line is None:
            return query.symbol
        lines = await self._lines(query.path)
        place = asked_place(query, lines)
        if not (symbol := query.symbol or symbol_at(lines[place.line], place.index)):
            raise InvalidInput(
                f"There is no name at line {place.line + 1}, character {place.index + 1} of '{query.path}'. "
                "Both count from 1."
            )
        return symbol

    async def _lines(self, path: CanonicalPath) -> list[str]:
        return code_lines((await read_text(path, self.workspace)).text)

    async def _search(self, query: CodeQuery, pattern: str, index: Callable[[str], int | None]) -> CodeAnswer:
        """Search a folder, or, for a file, its whole root for files in its language. `index` says where in a
        line the name is, and None for a line that does not count."""
        if self.search is None:
            raise Unavailable(f"{self.why} Search, the fallback, is unavailable too.")
        folder, glob = query.path, CODE_GLOB
        if self.workspace.kind(query.path) == "file":
            folder = self.workspace.canonical(self.workspace.root_of(query.path))
            glob = code_glob(query.path)
        wanted = LineQuery(pattern=pattern, path=folder, mode="content", glob=glob, limit=_MOST_LINES)
        found = await self.search.lines(wanted)
        hits = [hit for hit in map(_FOUND.fullmatch, found.text.split("\n")) if hit is not None]
        places = [
            _place(hit["path"], int(hit["line"]) - 1, start, hit["text"])
            for hit in hits
            if (start := index(hit["text"])) is not None
        ]
        places.sort(key=lambda place: place.path != query.path)
        return self._answer(places[: query.limit], found.total - len(hits) + len(places))

    def _answer(self, places: Sequence[CodePlace], total: int, text: str = "") -> CodeAnswer:
        return CodeAnswer(
            places=tuple(places), total=total, text=text, source="a text search", fallback=self.why
        )


def _place(path: str, line: int, index: int, text: str) -> CodePlace:
    return CodePlace(path=path, line=line + 1, character=index + 1, text=text.strip()[:MOST_TEXT])
