"""Maps each operation to requests of the Language Server Protocol.

Imported on the first query, because the protocol's types take half a second to import.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice

from lsprotocol import types

from mcp_toolserver.capabilities.code import CodeAnswer, CodeOperation, CodeQuery
from mcp_toolserver.errors import Denied, Unavailable
from mcp_toolserver.runtime.files.workspace import Workspace
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
from mcp_toolserver.runtime.lsp.session import Session
from mcp_toolserver.runtime.lsp.visible_locations import CodeLocation, LocationView
from mcp_toolserver.text.code.positions import to_units
from mcp_toolserver.text.code.resolve_symbol import asked_place

_MOST_HOVER = 10_000
_MAX_ITEMS = 3
"""How many call hierarchy items of one position are followed."""

_LOCAL = frozenset({"hover", "documentSymbol"})
"""Operations that do not need the whole project to be indexed."""

_UNPLACED = frozenset({"documentSymbol", "workspaceSymbol", "diagnostics"})
"""Operations that are about no position."""

_DEFINITION = "textDocument/definition"
_REFERENCES = "textDocument/references"
_CALLS = "textDocument/prepareCallHierarchy"
_METHODS: Mapping[CodeOperation, str] = {
    "goToDefinition": _DEFINITION,
    "goToImplementation": "textDocument/implementation",
    "findReferences": _REFERENCES,
    "hover": "textDocument/hover",
    "documentSymbol": "textDocument/documentSymbol",
    "workspaceSymbol": "workspace/symbol",
    "prepareCallHierarchy": _CALLS,
    "incomingCalls": _CALLS,
    "outgoingCalls": _CALLS,
}


@dataclass(frozen=True, kw_only=True)
class RequestHandler:
    """Runs one query on one server."""

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
        view = LocationView(workspace=self.workspace, encoding=session.encoding)
        places = await view.visible(found.locations, self.query.limit)
        looked_at = len(places) + view.withheld
        note = "" if operation in _UNPLACED else asked_place(self.query, self.document.lines).note
        return CodeAnswer(
            places=places,
            total=len(places) + max(0, len(found.locations) - looked_at) + found.unread,
            withheld=view.withheld,
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
            case "goToDefinition" | "goToImplementation" | "findReferences":
                return await self._locations(_METHODS[self.query.operation])
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

    async def _locations(self, method: str) -> Found:
        if method != _REFERENCES:
            return parse_locations(await self._at_place(method))
        found = parse_locations(await self._at_place(method, context={"includeDeclaration": True}))
        in_order = sorted(found.locations, key=lambda one: (one.uri, one.line, one.units))
        return replace(found, locations=in_order)

    async def _symbols(self) -> Found:
        result = await self.session.request("workspace/symbol", {"query": self.query.symbol})
        symbols = parse_list(result, symbol_type)
        return Found(locations=[from_symbol(one) for one in symbols], unread=unread(result))

    async def _at_place(self, method: str, **more: object) -> object:
        """Send a request that is about the position."""
        place = asked_place(self.query, self.document.lines)
        units = to_units(self.document.lines[place.line], place.index, self.session.encoding)
        position = {"line": place.line, "character": units}
        return await self._of_document(method, position=position, **more)

    async def _of_document(self, method: str, **more: object) -> object:
        return await self.session.request(method, {"textDocument": {"uri": self.document.uri}, **more})

    async def _hover(self) -> Found:
        if self.may_hide and self.session.supports(_DEFINITION):
            self._refuse_hidden(await self._locations(_DEFINITION))
        result = await self._at_place("textDocument/hover")
        if result is None:
            return Found()
        return Found(text=hover_text(parse_as(result, types.Hover).contents)[:_MOST_HOVER])

    def _refuse_hidden(self, defined: Found) -> None:
        """Refuse a name defined in a hidden file: the hover text quotes that file."""
        view = LocationView(workspace=self.workspace, encoding=self.session.encoding)
        if any(view.is_hidden(location.uri) for location in defined.locations):
            raise Denied("A rule of the operator hides the file that defines this. Go on without it.")

    async def _outline(self) -> Found:
        result = await self._of_document("textDocument/documentSymbol")
        symbols = parse_list(
            result, lambda raw: types.SymbolInformation if "location" in raw else types.DocumentSymbol
        )
        locations = islice(from_outline(symbols, self.document.uri, 0), MAX_ENTRIES)
        return Found(locations=tuple(locations), unread=unread(result))

    async def _calls(self) -> Found:
        """Return the functions at the position, or the calls of the first ones."""
        operation = self.query.operation
        items = parse_list(await self._at_place(_CALLS), lambda _: types.CallHierarchyItem)
        if operation == "prepareCallHierarchy":
            return Found(locations=[from_item(item) for item in items])
        locations: list[CodeLocation] = []
        for item in items[:_MAX_ITEMS]:
            params = {"item": CONVERTER.unstructure(item)}
            calls = await self.session.request(f"callHierarchy/{operation}", params)
            if operation == "outgoingCalls":
                called = parse_list(calls, lambda _: types.CallHierarchyOutgoingCall)
                locations += (from_item(call.to) for call in called)
                continue
            for call in parse_list(calls, lambda _: types.CallHierarchyIncomingCall):
                label = item_label(call.from_)
                locations += (location_at(call.from_.uri, place, label) for place in call.from_ranges)
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
        found = parse_list(last.items, lambda _: types.Diagnostic)
        in_order = sorted(found, key=lambda one: (one.range.start.line, one.range.start.character))
        return Found(
            locations=[from_problem(self.document.uri, one) for one in in_order],
            unread=unread(last.items),
            note="" if last.is_of(self.document) else outdated,
        )
