"""Each operation as requests of the Language Server Protocol, and what comes back.

Imported when a language server is first asked: the types of the protocol take half a second.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice

from lsprotocol import types

from mcp_toolserver.capabilities.languages import CodeAnswer, CodeOperation, CodeQuery
from mcp_toolserver.errors import Denied, Unavailable
from mcp_toolserver.runtime.lsp.documents import Document
from mcp_toolserver.runtime.lsp.session import PULL, Session
from mcp_toolserver.runtime.lsp.spots import (
    CONVERTER,
    MOST_LOOKED_AT,
    Found,
    at,
    beyond,
    each,
    from_item,
    from_outline,
    from_problem,
    from_symbol,
    hover_text,
    located,
    named,
    structured,
    symbol_type,
)
from mcp_toolserver.runtime.lsp.view import Spot, View
from mcp_toolserver.runtime.sandbox.wire import is_object
from mcp_toolserver.text.code_asked import asked_place
from mcp_toolserver.text.code_positions import to_units

_MOST_HOVER = 10_000
_ITEMS = 3
"""Of those that one place may stand for, whose calls are followed."""

_OF_ONE_FILE = frozenset({"hover", "documentSymbol"})
"""What can be answered before the whole project has been read."""

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
class Asking:
    """One question at one server."""

    session: Session
    document: Document
    view: View
    query: CodeQuery
    hiding: bool
    """Whether the operator hides anything."""

    async def answer(self) -> CodeAnswer:
        """Ask it.

        Raises:
            InvalidInput: the position is not in the file.
            Denied: a rule hides what the answer is about.
            Unavailable: this server does not answer such questions.
            Ended, Refused, TimeoutError, Unintelligible: it does not answer this one.
        """
        operation = self.query.operation
        method = _METHODS.get(operation)
        if method is not None and not self.session.offers(method):
            raise Unavailable(
                f"{self.session.name} does not offer {operation}. Ask with another operation, or use "
                "grep_search."
            )
        ask = partial(_ASKED[operation], self)
        is_local = operation in _OF_ONE_FILE
        found = await self._current(ask, is_local=is_local)
        places = await self.view.shown(found.spots, self.query.limit)
        looked_at = len(places) + self.view.withheld
        return CodeAnswer(
            places=places,
            total=len(places) + max(0, len(found.spots) - looked_at) + found.beyond,
            withheld=self.view.withheld,
            text=found.text,
            source=self.session.name,
            unfinished=not is_local and not self.session.is_settled,
        )

    async def _current(self, ask: Callable[[], Awaitable[Found]], *, is_local: bool) -> Found:
        opening = self.view.workspace.regular
        # A server that tells of problems by itself has to know first.
        if self.query.operation != "diagnostics" and (is_local or self.session.is_settled):
            return await self.session.current(ask, opening)
        await self.session.know(opening)
        return await (ask() if is_local else self.session.settled(ask))

    @property
    def _place(self) -> types.TextDocumentPositionParams:
        line, index = asked_place(self.query, self.document.lines)
        units = to_units(self.document.lines[line], index, self.session.encoding)
        return types.TextDocumentPositionParams(
            text_document=self._identity, position=types.Position(line=line, character=units)
        )

    @property
    def _identity(self) -> types.TextDocumentIdentifier:
        return types.TextDocumentIdentifier(uri=self.document.uri)

    async def _request(self, method: str, params: object) -> object:
        return await self.session.request(method, CONVERTER.unstructure(params))

    async def definitions(self) -> Found:
        return located(await self._request("textDocument/definition", self._place))

    async def implementations(self) -> Found:
        return located(await self._request("textDocument/implementation", self._place))

    async def references(self) -> Found:
        place = self._place
        params = types.ReferenceParams(
            text_document=place.text_document,
            position=place.position,
            context=types.ReferenceContext(include_declaration=True),
        )
        found = located(await self._request("textDocument/references", params))
        in_order = sorted(found.spots, key=lambda spot: (spot.uri, spot.line, spot.units))
        return Found(spots=in_order, beyond=found.beyond)

    async def hover(self) -> Found:
        place = self._place
        if self.hiding and self.session.offers("textDocument/definition"):
            self._refuse_hidden(await self.definitions())
        result = await self._request("textDocument/hover", place)
        if result is None:
            return Found()
        return Found(text=hover_text(structured(result, types.Hover).contents)[:_MOST_HOVER])

    def _refuse_hidden(self, defined: Found) -> None:
        """What a server says of a name quotes the file that defines it."""
        if any(self.view.is_hidden(spot.uri) for spot in defined.spots):
            raise Denied("A rule of the operator hides the file that defines this. Go on without it.")

    async def outline(self) -> Found:
        params = types.DocumentSymbolParams(text_document=self._identity)
        result = await self._request("textDocument/documentSymbol", params)
        symbols = each(
            result, lambda raw: types.SymbolInformation if "location" in raw else types.DocumentSymbol
        )
        spots = islice(from_outline(symbols, self.document.uri, 0), MOST_LOOKED_AT)
        return Found(spots=tuple(spots), beyond=beyond(result))

    async def symbols(self) -> Found:
        result = await self._request("workspace/symbol", types.WorkspaceSymbolParams(query=self.query.symbol))
        return Found(spots=tuple(map(from_symbol, each(result, symbol_type))), beyond=beyond(result))

    async def hierarchy(self) -> Found:
        return Found(spots=[from_item(item) for item in await self._items()])

    async def incoming(self) -> Found:
        spots: list[Spot] = []
        for item in (await self._items())[:_ITEMS]:
            calls = await self._request(
                "callHierarchy/incomingCalls", types.CallHierarchyIncomingCallsParams(item=item)
            )
            for call in each(calls, lambda _: types.CallHierarchyIncomingCall):
                spots += (at(call.from_.uri, place, named(call.from_)) for place in call.from_ranges)
        return Found(spots=spots)

    async def outgoing(self) -> Found:
        spots: list[Spot] = []
        for item in (await self._items())[:_ITEMS]:
            calls = await self._request(
                "callHierarchy/outgoingCalls", types.CallHierarchyOutgoingCallsParams(item=item)
            )
            spots += (from_item(call.to) for call in each(calls, lambda _: types.CallHierarchyOutgoingCall))
        return Found(spots=spots)

    async def problems(self) -> Found:
        told = await self._problems()
        found = each(told, lambda _: types.Diagnostic)
        in_order = sorted(found, key=lambda one: (one.range.start.line, one.range.start.character))
        return Found(spots=[from_problem(self.document.uri, one) for one in in_order], beyond=beyond(told))

    async def _problems(self) -> object:
        # A server may say after it was introduced that it wants to be asked.
        told = None if self.session.offers(PULL) else await self.session.problems(self.document)
        if self.session.offers(PULL):
            params = types.DocumentDiagnosticParams(text_document=self._identity)
            report = await self._request(PULL, params)
            return report.get("items") if is_object(report) else None
        if told is None:
            raise Unavailable(
                f"{self.session.name} has not said anything about '{self.query.path}' yet. Ask again, or run "
                "the checks of the project."
            )
        return told

    async def _items(self) -> list[types.CallHierarchyItem]:
        result = await self._request("textDocument/prepareCallHierarchy", self._place)
        return each(result, lambda _: types.CallHierarchyItem)


_ASKED: Mapping[CodeOperation, Callable[[Asking], Awaitable[Found]]] = {
    "goToDefinition": Asking.definitions,
    "goToImplementation": Asking.implementations,
    "findReferences": Asking.references,
    "hover": Asking.hover,
    "documentSymbol": Asking.outline,
    "workspaceSymbol": Asking.symbols,
    "prepareCallHierarchy": Asking.hierarchy,
    "incomingCalls": Asking.incoming,
    "outgoingCalls": Asking.outgoing,
    "diagnostics": Asking.problems,
}
