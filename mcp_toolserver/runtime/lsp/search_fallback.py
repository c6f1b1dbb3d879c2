"""Answers queries with text search when no language server is available: lines that look like definitions,
and lines that contain the name. Scopes and types are ignored."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mcp_toolserver.capabilities.code import CodeAnswer, CodePlace, CodeQuery
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.search import LineQuery, Search
from mcp_toolserver.errors import InvalidInput, Unavailable
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.lsp.documents import read_text
from mcp_toolserver.runtime.lsp.visible_locations import MOST_TEXT
from mcp_toolserver.text.code.languages import (
    LANGUAGES,
    Language,
    definition_pattern,
    outline,
    searched_language,
)
from mcp_toolserver.text.code.positions import code_lines, symbol_at, symbol_start
from mcp_toolserver.text.code.resolve_symbol import asked_place

SOURCE = "a search for definitions by their form"
_FOUND = re.compile(r"(?P<path>.+?):(?P<line>[0-9]+):(?P<text>.*)", re.DOTALL)
_SHOWN_OF_DEFINITION = 6
"""Lines of a definition shown as hover text."""


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
                return await self._outline(query)
            case "workspaceSymbol":
                return await self._symbols(query)
            case "goToDefinition":
                return await self._definitions(query)
            case "findReferences":
                return await self._references(query)
            case "hover":
                return await self._hover(query)
            case _:
                raise Unavailable(
                    f"{self.why} {query.operation} needs one; goToDefinition, findReferences, hover and the "
                    "symbol operations work without."
                )

    async def _outline(self, query: CodeQuery) -> CodeAnswer:
        lines = await self._lines(query.path)
        found = outline(lines, searched_language(query.path))
        places = tuple(
            CodePlace(
                path=query.path,
                line=one.line + 1,
                character=one.index + 1,
                text=lines[one.line].strip()[:MOST_TEXT],
            )
            for one in found[: query.limit]
        )
        return self._answer(places, len(found))

    async def _symbols(self, query: CodeQuery) -> CodeAnswer:
        if not query.symbol:
            raise InvalidInput(
                f"{self.why} To search for symbols without one, give `query`: a part of a name."
            )
        name = rf"\w*{re.escape(query.symbol)}\w*"
        patterns = dict.fromkeys(definition_pattern(language, name) for language in LANGUAGES)
        endings = sorted({ending for language in LANGUAGES for ending in language.ids})
        pattern = "|".join(patterns)
        return await self._search(query, pattern, f"*.{{{','.join(endings)}}}", ignore_case=True)

    async def _definitions(self, query: CodeQuery) -> CodeAnswer:
        language, symbol = await self._symbol(query)
        pattern = definition_pattern(language, re.escape(symbol))
        return await self._search(self._everywhere(query, symbol), pattern, language.glob)

    async def _references(self, query: CodeQuery) -> CodeAnswer:
        language, symbol = await self._symbol(query)
        return await self._search(self._everywhere(query, symbol), rf"\b{re.escape(symbol)}\b", language.glob)

    async def _hover(self, query: CodeQuery) -> CodeAnswer:
        found = await self._definitions(query)
        if not found.places:
            return found
        first = found.places[0]
        lines = await self._lines(self.workspace.canonical(first.path))
        visible = lines[first.line - 1 : first.line - 1 + _SHOWN_OF_DEFINITION]
        text = "\n".join((f"{first.path}:{first.line}", *(line[:MOST_TEXT] for line in visible)))
        return self._answer((), 0, text)

    async def _symbol(self, query: CodeQuery) -> tuple[Language, str]:
        """Return the name at the queried position."""
        language = searched_language(query.path)
        if query.symbol and query.line is None:
            return language, query.symbol
        lines = await self._lines(query.path)
        line, index = asked_place(query, lines)
        symbol = query.symbol or symbol_at(lines[line], index)
        if not symbol:
            raise InvalidInput(
                f"There is no name at line {line + 1}, character {index + 1} of '{query.path}'. Both count "
                "from 1."
            )
        return language, symbol

    async def _lines(self, path: CanonicalPath) -> list[str]:
        return code_lines((await read_text(path, self.workspace.open_file)).text)

    async def _search(
        self, query: CodeQuery, pattern: str, glob: str, *, ignore_case: bool = False
    ) -> CodeAnswer:
        if self.search is None:
            raise Unavailable(f"{self.why} Search, the fallback, is unavailable too.")
        found = await self.search.lines(
            LineQuery(
                pattern=pattern,
                path=query.path,
                mode="content",
                glob=glob,
                ignore_case=ignore_case,
                limit=query.limit,
            )
        )
        hits = (_FOUND.fullmatch(line) for line in found.text.splitlines())
        places = tuple(_place(hit, query.symbol) for hit in hits if hit is not None)
        return self._answer(places, max(found.total, len(places)))

    def _everywhere(self, query: CodeQuery, symbol: str) -> CodeQuery:
        """Return the query for `symbol` in the whole root of its file."""
        root = self.workspace.root_of(query.path)
        return replace(query, path=self.workspace.canonical(root), symbol=symbol)

    def _answer(self, places: Sequence[CodePlace], total: int, text: str = "") -> CodeAnswer:
        return CodeAnswer(places=tuple(places), total=total, text=text, source=SOURCE, fallback=self.why)


def _place(hit: "re.Match[str]", symbol: str) -> CodePlace:
    line = hit["text"]
    start = symbol_start(line.lower(), symbol.lower()) or 0
    return CodePlace(
        path=hit["path"], line=int(hit["line"]), character=start + 1, text=line.strip()[:MOST_TEXT]
    )
