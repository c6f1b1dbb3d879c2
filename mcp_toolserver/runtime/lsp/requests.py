"""Maps each operation to requests of the Language Server Protocol.

Imported on the first query, because the protocol's types take half a second to import.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import get_args

from lsprotocol import types

from mcp_toolserver.capabilities.code import CodeAnswer, CodeOperation, CodeQuery
from mcp_toolserver.errors import Denied, Unavailable
from mcp_toolserver.runtime.lsp.documents import Document
from mcp_toolserver.runtime.lsp.responses import (
    CONVERTER,
    MAX_ENTRIES,
    Found,
    from_item,
    from_outline,
    from_problem,
    from_symbol,
    hover_text,
    item_label,
    location_at,
    parse_as,
    parse_list,
    parse_locations,
    symbol_type,
    unread,
)
from mcp_toolserver.runtime.lsp.session import PULL, Session
from mcp_toolserver.runtime.lsp.visible_locations import CodeLocation, LocationView
from mcp_toolserver.text.code.positions import to_units
from mcp_toolserver.text.code.resolve_symbol import asked_place
from mcp_toolserver.text.json_values import is_object

_MOST_HOVER = 10_000
_MAX_ITEMS = 3
"""How many call hierarchy items of one position are followed."""

_SINGLE_FILE = frozenset({"hover", "documentSymbol"})
"""Operations that do not need the whole project to be indexed."""

_POSITIONED = frozenset(get_args(CodeOperation)) - {"documentSymbol", "workspaceSymbol", "diagnostics"}
"""Operations that are about a position."""

_METHODS: Mapping[CodeOperation, str] = {
    "goToDefinition": "textDocument/definition",
    "goToImplementation": "textDocument/implementation",
    "findReferences": "textDocument/references",
    "hover": "textDocument/hover",
    "documentSymbol": "textDocument/documentSymbol",
    "workspaceSymbol": "workspace/symbol",
    "prepareCallHierarchy": "textDocument/prepareCallHierarchy",
    "incomingCalls": "textDocument/prepareCallHierarchy",
    "outgoingCalls": "textDocument/prepareCallHierarchy",
}


@dataclass(frozen=True, kw_only=True)
class RequestHandler:
    """Runs one query on one server."""

    session: Session
    document: Document
    view: LocationView
    query: CodeQuery
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
        operation = self.query.operation
        method = _METHODS.get(operation)
        if method is not None and not self.session.supports(method):
            raise Unavailable(
                f"{self.session.name} does not support {operation}. Use another operation, or grep_search."
            )
        ask = partial(_OPERATIONS[operation], self)
        is_local = operation in _SINGLE_FILE
        found = await self._current(ask, is_local=is_local)
        places = await self.view.visible(found.locations, self.query.limit)
        looked_at = len(places) + self.view.withheld
        return CodeAnswer(
            places=places,
            total=len(places) + max(0, len(found.locations) - looked_at) + found.unread,
            withheld=self.view.withheld,
            text=found.text,
            note=found.note or self._note(),
            source=self.session.name,
            unfinished=not is_local and not self.session.is_indexed,
        )

    def _note(self) -> str:
        if self.query.operation not in _POSITIONED:
            return ""
        return asked_place(self.query, self.document.lines).note

    async def _current(self, ask: Callable[[], Awaitable[Found]], *, is_local: bool) -> Found:
        files = self.view.workspace
        # A server that publishes diagnostics has to know of changes first.
        if self.query.operation != "diagnostics" and (is_local or self.session.is_indexed):
            return await self.session.query_current(ask, files)
        await self.session.sync_files(files)
        return await (ask() if is_local else self.session.query_until_stable(ask))

    @property
    def _place(self) -> types.TextDocumentPositionParams:
        place = asked_place(self.query, self.document.lines)
        units = to_units(self.document.lines[place.line], place.index, self.session.encoding)
        return types.TextDocumentPositionParams(
            text_document=self._identity, position=types.Position(line=place.line, character=units)
        )

    @property
    def _identity(self) -> types.TextDocumentIdentifier:
        return types.TextDocumentIdentifier(uri=self.document.uri)

    async def _request(self, method: str, params: object) -> object:
        return await self.session.request(method, CONVERTER.unstructure(params))

    async def definitions(self) -> Found:
        return parse_locations(await self._request("textDocument/definition", self._place))

    async def implementations(self) -> Found:
        return parse_locations(await self._request("textDocument/implementation", self._place))

    async def references(self) -> Found:
        place = self._place
        params = types.ReferenceParams(
            text_document=place.text_document,
            position=place.position,
            context=types.ReferenceContext(include_declaration=True),
        )
        found = parse_locations(await self._request("textDocument/references", params))
        in_order = sorted(found.locations, key=lambda location: (location.uri, location.line, location.units))
        return Found(locations=in_order, unread=found.unread)

    async def hover(self) -> Found:
        place = self._place
        if self.may_hide and self.session.supports("textDocument/definition"):
            self._refuse_hidden(await self.definitions())
        result = await self._request("textDocument/hover", place)
        if result is None:
            return Found()
        return Found(text=hover_text(parse_as(result, types.Hover).contents)[:_MOST_HOVER])

    def _refuse_hidden(self, defined: Found) -> None:
        """Refuse a name defined in a hidden file: the hover text quotes that file."""
        if any(self.view.is_hidden(location.uri) for location in defined.locations):
            raise Denied("A rule of the operator hides the file that defines this. Go on without it.")

    async def outline(self) -> Found:
        params = types.DocumentSymbolParams(text_document=self._identity)
        result = await self._request("textDocument/documentSymbol", params)
        symbols = parse_list(
            result, lambda raw: types.SymbolInformation if "location" in raw else types.DocumentSymbol
        )
        locations = islice(from_outline(symbols, self.document.uri, 0), MAX_ENTRIES)
        return Found(locations=tuple(locations), unread=unread(result))

    async def symbols(self) -> Found:
        result = await self._request("workspace/symbol", types.WorkspaceSymbolParams(query=self.query.symbol))
        return Found(
            locations=tuple(map(from_symbol, parse_list(result, symbol_type))), unread=unread(result)
        )

    async def hierarchy(self) -> Found:
        return Found(locations=[from_item(item) for item in await self._items()])

    async def incoming(self) -> Found:
        locations: list[CodeLocation] = []
        for item in (await self._items())[:_MAX_ITEMS]:
            calls = await self._request(
                "callHierarchy/incomingCalls", types.CallHierarchyIncomingCallsParams(item=item)
            )
            for call in parse_list(calls, lambda _: types.CallHierarchyIncomingCall):
                locations += (
                    location_at(call.from_.uri, place, item_label(call.from_)) for place in call.from_ranges
                )
        return Found(locations=locations)

    async def outgoing(self) -> Found:
        locations: list[CodeLocation] = []
        for item in (await self._items())[:_MAX_ITEMS]:
            calls = await self._request(
                "callHierarchy/outgoingCalls", types.CallHierarchyOutgoingCallsParams(item=item)
            )
            locations += (
                from_item(call.to) for call in parse_list(calls, lambda _: types.CallHierarchyOutgoingCall)
            )
        return Found(locations=locations)

    async def diagnostics(self) -> Found:
        published = await self._diagnostics()
        found = parse_list(published, lambda _: types.Diagnostic)
        in_order = sorted(found, key=lambda one: (one.range.start.line, one.range.start.character))
        return Found(
            locations=[from_problem(self.document.uri, one) for one in in_order],
            unread=unread(published),
            note=self._outdated(),
        )

    def _outdated(self) -> str:
        """Say that diagnostics are those of an earlier text of the document, if they are."""
        last = self.session.published.get(self.document.uri)
        if self.session.supports(PULL) or last is None or last.is_of(self.document):
            return ""
        return f"{self.session.name} published nothing since the file changed; this is what it said before."

    async def _diagnostics(self) -> object:
        # A server may register this capability after initialization.
        published = None if self.session.supports(PULL) else await self.session.diagnostics(self.document)
        if published is None and (last := self.session.published.get(self.document.uri)) is not None:
            # Some publish again only what differs.
            published = last.items
        if self.session.supports(PULL):
            params = types.DocumentDiagnosticParams(text_document=self._identity)
            report = await self._request(PULL, params)
            return report.get("items") if is_object(report) else None
        if published is None:
            raise Unavailable(
                f"{self.session.name} has not reported on '{self.query.path}' yet. Try again, or run the "
                "project's checks."
            )
        return published

    async def _items(self) -> list[types.CallHierarchyItem]:
        result = await self._request("textDocument/prepareCallHierarchy", self._place)
        return parse_list(result, lambda _: types.CallHierarchyItem)


_OPERATIONS: Mapping[CodeOperation, Callable[[RequestHandler], Awaitable[Found]]] = {
    "goToDefinition": RequestHandler.definitions,
    "goToImplementation": RequestHandler.implementations,
    "findReferences": RequestHandler.references,
    "hover": RequestHandler.hover,
    "documentSymbol": RequestHandler.outline,
    "workspaceSymbol": RequestHandler.symbols,
    "prepareCallHierarchy": RequestHandler.hierarchy,
    "incomingCalls": RequestHandler.incoming,
    "outgoingCalls": RequestHandler.outgoing,
    "diagnostics": RequestHandler.diagnostics,
}
