"""Maps each operation to requests of the Language Server Protocol, and their responses to locations.

Imported on the first query, because the protocol's types take half a second to import.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from cattrs.errors import BaseValidationError, StructureHandlerNotFoundError
from lsprotocol import types
from lsprotocol.converters import get_converter

from mcp_toolserver.capabilities.code import CodeAnswer, CodeOperation, CodePlace, CodeQuery
from mcp_toolserver.errors import Denied, ToolError, Unavailable
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.lsp.connection import ProtocolError
from mcp_toolserver.runtime.lsp.documents import MOST_TEXT, Document, read_text, to_path
from mcp_toolserver.runtime.lsp.session import Session
from mcp_toolserver.text.code.positions import Encoding, asked_place, code_lines, to_index, to_units
from mcp_toolserver.text.json_values import is_list, is_object

T = TypeVar("T")

CONVERTER = get_converter()
MALFORMED = "sent a response that violates the protocol"
_FAILURES = (
    *(BaseValidationError, StructureHandlerNotFoundError),
    *(AttributeError, LookupError, RecursionError, TypeError, ValueError),
)
"""Exceptions that the converter raises for invalid values."""

_MAX_ENTRIES = 2_000
"""Entries of one response that are read."""

_MOST_DEPTH = 20

_MOST_HOVER = 10_000
_MAX_ITEMS = 3
"""How many call hierarchy items of one position are followed."""

_LOCAL = frozenset({"hover", "documentSymbol"})
"""Operations that do not need the whole project to be indexed."""

_UNPLACED = frozenset({"documentSymbol", "workspaceSymbol", "diagnostics"})
"""Operations that are about no position."""

_DEFINITION = "textDocument/definition"
_CALLS = "textDocument/prepareCallHierarchy"
_METHODS: Mapping[CodeOperation, str] = {
    "goToDefinition": _DEFINITION,
    "goToImplementation": "textDocument/implementation",
    "findReferences": "textDocument/references",
    "hover": "textDocument/hover",
    "documentSymbol": "textDocument/documentSymbol",
    "workspaceSymbol": "workspace/symbol",
    "prepareCallHierarchy": _CALLS,
    "incomingCalls": _CALLS,
    "outgoingCalls": _CALLS,
}


@dataclass(frozen=True, kw_only=True)
class CodeLocation:
    uri: str
    line: int
    units: int
    label: str = ""
    text: str | None = None
    """Text to show; None for the source line."""
    depth: int = 0


@dataclass(frozen=True, kw_only=True)
class Found:
    locations: Sequence[CodeLocation] = ()
    unread: int = 0
    """Entries that were not read."""
    text: str = ""
    note: str = ""
    """What has to be known of the result; a sentence."""


@dataclass(frozen=True)
class RequestHandler:
    session: Session
    document: Document
    query: CodeQuery
    workspace: Workspace
    may_hide: bool
    """Whether a rule of the operator hides anything."""

    async def answer(self) -> CodeAnswer:
        """Run the query.

        Raises:
            InvalidInput: the position is not in the file.
            Denied: a rule hides the target.
            Unavailable: the server does not support the operation.
            ConnectionClosed, ResponseError, TimeoutError, ProtocolError: the server gave no answer.
        """
        operation, session = self.query.operation, self.session
        method = _METHODS.get(operation)
        if method is not None and not session.supports(method):
            raise Unavailable(
                f"{session.name} does not support {operation}. Use another operation, or grep_search."
            )
        found = await self._current()
        limit, encoding = self.query.limit, session.encoding
        places, withheld = await _visible(found.locations, limit, self.workspace, encoding)
        note = "" if operation in _UNPLACED else asked_place(self.query, self.document.lines).note
        return CodeAnswer(
            places=places,
            total=len(found.locations) - withheld + found.unread,
            withheld=withheld,
            text=found.text,
            note=found.note or note,
            source=session.name,
            unfinished=operation not in _LOCAL and not session.is_indexed,
        )

    async def _current(self) -> Found:
        """Return what a server finds that knows the files as they are now."""
        operation, session = self.query.operation, self.session
        # A server that publishes diagnostics has to know of changes first.
        if operation != "diagnostics" and (operation in _LOCAL or session.is_indexed):
            return await session.query_current(self._ask, self.workspace)
        await session.sync_files(self.workspace)
        return await (self._ask() if operation in _LOCAL else session.query_until_stable(self._ask))

    async def _ask(self) -> Found:
        match self.query.operation:
            case "goToDefinition" | "goToImplementation":
                return _parse_locations(await self._at_place(_METHODS[self.query.operation]))
            case "findReferences":
                return await self._references()
            case "hover":
                return await self._hover()
            case "documentSymbol":
                return await self._outline()
            case "workspaceSymbol":
                return await self._symbols()
            case "diagnostics":
                return await self._diagnostics()
            case "prepareCallHierarchy" | "incomingCalls" | "outgoingCalls":
                return await self._calls()

    async def _references(self) -> Found:
        context = {"includeDeclaration": True}
        found = _parse_locations(await self._at_place("textDocument/references", context=context))
        in_order = sorted(found.locations, key=lambda one: (one.uri, one.line, one.units))
        return replace(found, locations=in_order)

    async def _symbols(self) -> Found:
        result = await self.session.request("workspace/symbol", {"query": self.query.symbol})
        symbols = _parse_list(result, _symbol_type)
        return Found(locations=[_from_symbol(one) for one in symbols], unread=_unread(result))

    async def _at_place(self, method: str, **more: object) -> object:
        """Send a request that is about the position."""
        place = asked_place(self.query, self.document.lines)
        units = to_units(self.document.lines[place.line], place.index, self.session.encoding)
        position = {"line": place.line, "character": units}
        return await self.session.request_for(self.document, method, position=position, **more)

    async def _hover(self) -> Found:
        if self.may_hide and self.session.supports(_DEFINITION):
            defined = _parse_locations(await self._at_place(_DEFINITION))
            # The hover text quotes the file.
            if any(self._is_hidden(location.uri) for location in defined.locations):
                raise Denied("A rule of the operator hides the file that defines this. Go on without it.")
        result = await self._at_place("textDocument/hover")
        if result is None:
            return Found()
        return Found(text=_hover_text(parse_as(result, types.Hover).contents)[:_MOST_HOVER])

    def _is_hidden(self, uri: str) -> bool:
        """Whether a rule of the operator hides the file at `uri`."""
        path = to_path(uri)
        try:
            return path is not None and self.workspace.is_hidden(self.workspace.canonical(path))
        except ToolError:
            return False

    async def _outline(self) -> Found:
        result = await self.session.request_for(self.document, "textDocument/documentSymbol")
        symbols = _parse_list(
            result, lambda raw: types.SymbolInformation if "location" in raw else types.DocumentSymbol
        )
        locations = islice(_from_outline(symbols, self.document.uri), _MAX_ENTRIES)
        return Found(locations=tuple(locations), unread=_unread(result))

    async def _calls(self) -> Found:
        """Return the functions at the position, or the calls of the first ones."""
        operation = self.query.operation
        items = _parse_list(await self._at_place(_CALLS), lambda _: types.CallHierarchyItem)
        if operation == "prepareCallHierarchy":
            return Found(locations=[_from_item(item) for item in items])
        locations: list[CodeLocation] = []
        for item in items[:_MAX_ITEMS]:
            params = {"item": CONVERTER.unstructure(item)}
            calls = await self.session.request(f"callHierarchy/{operation}", params)
            if operation == "outgoingCalls":
                called = _parse_list(calls, lambda _: types.CallHierarchyOutgoingCall)
                locations += (_from_item(call.to) for call in called)
                continue
            for call in _parse_list(calls, lambda _: types.CallHierarchyIncomingCall):
                label = _label(call.from_)
                locations += (_location(call.from_.uri, place, label) for place in call.from_ranges)
        return Found(locations=locations)

    async def _diagnostics(self) -> Found:
        last = await self.session.diagnostics(self.document)
        if last is None:
            raise Unavailable(
                f"{self.session.name} has not reported on '{self.query.path}' yet. Try again, or run the "
                "project's checks."
            )
        outdated = (
            f"{self.session.name} published nothing since the file changed; this is what it said before."
        )
        found = _parse_list(last.items, lambda _: types.Diagnostic)
        in_order = sorted(found, key=lambda one: one.range.start)
        return Found(
            locations=[_from_problem(self.document.uri, one) for one in in_order],
            unread=_unread(last.items),
            note="" if last.is_of(self.document) else outdated,
        )


# --- the locations that the caller may see ---------------------------------------------------------------
#
# A server can name any file. Each location is resolved inside the roots like every path of a caller, and
# shown with its line as it is on disk now.


async def _visible(
    locations: Iterable[CodeLocation], limit: int, workspace: Workspace, encoding: Encoding
) -> tuple[tuple[CodePlace, ...], int]:
    """Return the first `limit` locations that can be shown, and how many before them cannot, because they are
    outside the roots, hidden or missing."""
    places: list[CodePlace] = []
    withheld = 0
    files: dict[str, tuple[str, list[str]]] = {}
    for location in locations:
        if len(places) == limit:
            break
        if location.uri not in files:
            files[location.uri] = await _file(location.uri, workspace)
        path, lines = files[location.uri]
        if not 0 <= location.line < len(lines):
            withheld += 1
            continue
        line = lines[location.line]
        place = CodePlace(
            path=path,
            line=location.line + 1,
            character=to_index(line, location.units, encoding) + 1,
            text=_clip(line if location.text is None else location.text),
            label=_clip(location.label),
            depth=location.depth,
        )
        places.append(place)
    return tuple(places), withheld


async def _file(uri: str, workspace: Workspace) -> tuple[str, list[str]]:
    """Return the path and the lines of a file; no lines if it cannot be shown."""
    if (absolute := to_path(uri)) is None:
        return "", []
    try:
        path = workspace.canonical(absolute)
        return path, code_lines((await read_text(path, workspace)).text)
    except ToolError:
        return "", []


def _clip(text: str) -> str:
    flat = text.strip()
    return flat if len(flat) <= MOST_TEXT else f"{flat[:MOST_TEXT]}…"


# --- responses -------------------------------------------------------------------------------------------


def parse_as(raw: object, kind: type[T]) -> T:
    """Parse a value. Raises: ProtocolError: it does not match the protocol."""
    try:
        return CONVERTER.structure(raw, kind)
    except _FAILURES:
        raise ProtocolError(MALFORMED) from None


def _parse_list(result: object, kind: Callable[[dict[str, object]], type[T]]) -> list[T]:
    """Parse the entries of a list as the type that `kind` returns; skip invalid ones.

    Raises:
        ProtocolError: all entries are invalid.
    """
    raws = result[:_MAX_ENTRIES] if is_list(result) else []
    found: list[T] = []
    for raw in raws:
        with suppress(ProtocolError):
            found.append(parse_as(raw, kind(raw if is_object(raw) else {})))
    if raws and not found:
        raise ProtocolError(MALFORMED)
    return found


def _unread(result: object) -> int:
    """Return how many entries of a list are not read."""
    return max(0, len(result) - _MAX_ENTRIES) if is_list(result) else 0


def _parse_locations(result: object) -> Found:
    raws = [result] if is_object(result) else result
    places = _parse_list(raws, lambda raw: types.LocationLink if "targetUri" in raw else types.Location)
    locations = (
        _location(one.target_uri, one.target_selection_range)
        if isinstance(one, types.LocationLink)
        else _location(one.uri, one.range)
        for one in places
    )
    return Found(locations=tuple(dict.fromkeys(locations)), unread=_unread(result))


def _location(uri: str, place: types.Range, label: str = "", text: str | None = None) -> CodeLocation:
    return CodeLocation(uri=uri, line=place.start.line, units=place.start.character, label=label, text=text)


Symbol = types.DocumentSymbol | types.SymbolInformation


def _label(one: Symbol | types.WorkspaceSymbol | types.CallHierarchyItem) -> str:
    """Name the kind in words, `type parameter` rather than `TypeParameter`, and the symbol."""
    kind = "".join(f" {c.lower()}" if c.isupper() else c for c in one.kind.name).strip()
    return f"{kind} {one.name}"


def _from_item(item: types.CallHierarchyItem) -> CodeLocation:
    return _location(item.uri, item.selection_range, _label(item))


def _symbol_type(raw: dict[str, object]) -> type[types.SymbolInformation] | type[types.WorkspaceSymbol]:
    place = raw.get("location")
    return types.SymbolInformation if is_object(place) and "range" in place else types.WorkspaceSymbol


def _from_symbol(symbol: types.SymbolInformation | types.WorkspaceSymbol) -> CodeLocation:
    label = f"{_label(symbol)} in {symbol.container_name}" if symbol.container_name else _label(symbol)
    place = symbol.location
    if isinstance(place, types.Location):
        return _location(place.uri, place.range, label)
    return CodeLocation(uri=place.uri, line=0, units=0, label=label)


def _from_outline(symbols: Sequence[Symbol], uri: str, depth: int = 0) -> Iterator[CodeLocation]:
    """Yield the symbols of a file in order, parents first."""
    for symbol in sorted(symbols, key=lambda one: _name_range(one).start):
        nested = symbol if isinstance(symbol, types.DocumentSymbol) else None
        detail = (nested and nested.detail) or ""
        yield replace(_location(uri, _name_range(symbol), _label(symbol), detail), depth=depth)
        if nested and nested.children and depth < _MOST_DEPTH:
            yield from _from_outline(nested.children, uri, depth + 1)


def _name_range(symbol: Symbol) -> types.Range:
    return symbol.selection_range if isinstance(symbol, types.DocumentSymbol) else symbol.location.range


def _from_problem(uri: str, problem: types.Diagnostic) -> CodeLocation:
    severity = (problem.severity or types.DiagnosticSeverity.Error).name.lower()
    origin = " ".join(str(part) for part in (problem.source, problem.code) if part not in (None, ""))
    message = " ".join(str(problem.message).split())
    return _location(uri, problem.range, severity, f"{message} [{origin}]" if origin else message)


def _hover_text(contents: types.MarkupContent | types.MarkedString | Sequence[types.MarkedString]) -> str:
    if isinstance(contents, str):
        return contents.strip()
    if isinstance(contents, types.MarkupContent | types.MarkedStringWithLanguage):
        return contents.value.strip()
    return "\n\n".join(filter(None, map(_hover_text, contents)))
