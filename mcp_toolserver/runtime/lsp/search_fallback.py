"""Answers queries with text search when no language server is available: lines that look like definitions,
and lines that contain the name. Comments and string literals are skipped; scopes and types are ignored.
Definitions come first, then what lies near the file that the query is about."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from anyio import to_thread

from mcp_toolserver.capabilities.code import CodeAnswer, CodePlace, CodeQuery
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.search import LineQuery
from mcp_toolserver.errors import InvalidInput, ToolError, Unavailable
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.lsp.documents import read_text
from mcp_toolserver.runtime.lsp.visible_locations import MOST_TEXT
from mcp_toolserver.runtime.search.search import Ripgrep as Search
from mcp_toolserver.text.code.code_only import code_only
from mcp_toolserver.text.code.languages import (
    LANGUAGES,
    Language,
    definition_pattern,
    outline,
    searched_language,
)
from mcp_toolserver.text.code.positions import code_lines, symbol_at
from mcp_toolserver.text.code.rank_hits import Hit, HitKind, Wanted, code_hits, ranked
from mcp_toolserver.text.code.resolve_symbol import asked_place

SOURCE = "a search for definitions by their form"
_FOUND = re.compile(r"(?P<path>.+?):(?P<line>[0-9]+):(?P<text>.*)", re.DOTALL)
_SHOWN_OF_DEFINITION = 6
"""Lines of a definition shown as hover text."""

_MOST_LINES = 500
"""Found lines that are compared with the code around them."""


@dataclass(frozen=True)
class _Named:
    """What a query names."""

    language: Language
    symbol: str


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What is searched."""

    symbol: str
    pattern: str
    """Finds the lines to look at."""
    glob: str
    kind: HitKind
    near: str
    """The path from which nearness counts."""


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
        text, language = await self._text(query.path), searched_language(query.path)
        lines = code_lines(text)
        found = outline(code_lines(await to_thread.run_sync(code_only, text, language)), language)
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
        asked = _Asked(
            symbol=query.symbol,
            pattern="|".join(patterns),
            glob=f"*.{{{','.join(endings)}}}",
            kind="symbols",
            near=query.path,
        )
        return await self._search(query, query.path, asked)

    async def _definitions(self, query: CodeQuery) -> CodeAnswer:
        named = await self._symbol(query)
        pattern = definition_pattern(named.language, re.escape(named.symbol))
        return await self._everywhere(query, named, pattern, "definitions")

    async def _references(self, query: CodeQuery) -> CodeAnswer:
        named = await self._symbol(query)
        return await self._everywhere(query, named, rf"\b{re.escape(named.symbol)}\b", "references")

    async def _hover(self, query: CodeQuery) -> CodeAnswer:
        found = await self._definitions(query)
        if not found.places:
            return found
        first = found.places[0]
        lines = code_lines(await self._text(self.workspace.canonical(first.path)))
        visible = lines[first.line - 1 : first.line - 1 + _SHOWN_OF_DEFINITION]
        text = "\n".join((f"{first.path}:{first.line}", *(line[:MOST_TEXT] for line in visible)))
        return self._answer((), 0, text)

    async def _symbol(self, query: CodeQuery) -> _Named:
        """Return the name at the queried position."""
        language = searched_language(query.path)
        if query.symbol and query.line is None:
            return _Named(language, query.symbol)
        lines = code_lines(await self._text(query.path))
        place = asked_place(query, lines)
        symbol = query.symbol or symbol_at(lines[place.line], place.index)
        if not symbol:
            raise InvalidInput(
                f"There is no name at line {place.line + 1}, character {place.index + 1} of '{query.path}'. "
                "Both count from 1."
            )
        return _Named(language, symbol)

    async def _text(self, path: CanonicalPath) -> str:
        return (await read_text(path, self.workspace)).text

    async def _everywhere(self, query: CodeQuery, named: _Named, pattern: str, kind: HitKind) -> CodeAnswer:
        """Search the whole root of the queried file."""
        root = self.workspace.canonical(self.workspace.root_of(query.path))
        asked = _Asked(
            symbol=named.symbol, pattern=pattern, glob=named.language.glob, kind=kind, near=query.path
        )
        return await self._search(query, root, asked)

    async def _search(self, query: CodeQuery, folder: CanonicalPath, asked: _Asked) -> CodeAnswer:
        if self.search is None:
            raise Unavailable(f"{self.why} Search, the fallback, is unavailable too.")
        found = await self.search.lines(
            LineQuery(
                pattern=asked.pattern,
                path=folder,
                mode="content",
                glob=asked.glob,
                ignore_case=asked.kind == "symbols",
                limit=_MOST_LINES,
            )
        )
        lines: dict[str, list[int]] = {}
        for hit in map(_FOUND.fullmatch, found.text.splitlines()):
            if hit is not None:
                lines.setdefault(hit["path"], []).append(int(hit["line"]))
        hits = [hit for path, numbers in lines.items() for hit in await self._hits(path, numbers, asked)]
        unread = max(0, found.total - sum(map(len, lines.values())))
        in_order = ranked(hits, asked.symbol, asked.near)[: query.limit]
        return self._answer(tuple(map(_place, in_order)), len(hits) + unread)

    async def _hits(self, path: str, numbers: Sequence[int], asked: _Asked) -> list[Hit]:
        """Return which of the lines `numbers` of a file name the symbol in code."""
        try:
            text = await self._text(self.workspace.canonical(path))
        except ToolError:
            # It is gone, or too large to be looked at.
            return []
        wanted = Wanted(symbol=asked.symbol, kind=asked.kind, language=searched_language(path))
        return await to_thread.run_sync(code_hits, path, text, numbers, wanted)

    def _answer(self, places: Sequence[CodePlace], total: int, text: str = "") -> CodeAnswer:
        return CodeAnswer(places=tuple(places), total=total, text=text, source=SOURCE, fallback=self.why)


def _place(hit: Hit) -> CodePlace:
    return CodePlace(
        path=hit.path, line=hit.line + 1, character=hit.index + 1, text=hit.text.strip()[:MOST_TEXT]
    )
