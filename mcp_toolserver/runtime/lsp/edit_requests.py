"""Maps each operation that changes code to requests of the Language Server Protocol.

A code action that is a command is used where its argument is the edit, or where the command is known to do
nothing but ask the client for an edit. Other commands are not run: they change files themselves, where nobody
checks the change.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from lsprotocol import types

from mcp_toolserver.capabilities.call_scope import Refusal
from mcp_toolserver.capabilities.code import CodeEdit, CodeEditOperation, CodeEditQuery
from mcp_toolserver.errors import Conflict, InvalidInput, Unavailable
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.lsp.connection import ProtocolError
from mcp_toolserver.runtime.lsp.documents import Document
from mcp_toolserver.runtime.lsp.requests import CONVERTER, MALFORMED, parse_as
from mcp_toolserver.runtime.lsp.session import Session
from mcp_toolserver.runtime.lsp.workspace_edit import WorkspaceEditReader
from mcp_toolserver.text.code.positions import AskedPlace, asked_place, indentation, symbol_at, to_units
from mcp_toolserver.text.json_values import is_list, is_object

MOST_ACTIONS = 100
"""Code actions of one answer that are read."""

_MOST_TITLE = 200
"""Characters of a title."""

_ATTEMPTS = 3
"""How often an edit is requested until two in a row are the same."""

_METHODS: Mapping[CodeEditOperation, str] = {
    "rename": "textDocument/rename",
    "codeAction": "textDocument/codeAction",
    "format": "textDocument/formatting",
}

_EDIT_KEYS = frozenset(("changes", "documentChanges"))
"""The keys of a workspace edit."""

_EDIT_COMMANDS = frozenset(
    (
        *("clangd.applyFix", "clangd.applyTweak"),
        *("_typescript.applyRefactoring", "_typescript.organizeImports"),
        "gopls.apply_fix",
    )
)
"""Commands that compute an edit, ask the client to apply it, and do nothing else."""

_NOT_RUN = "The action also has a command for the language server; such commands are not run."


@dataclass(frozen=True)
class EditRequest:
    session: Session
    document: Document
    query: CodeEditQuery
    workspace: Workspace
    refuses: Refusal

    async def proposal(self) -> CodeEdit:
        """Return the change.

        Raises:
            as `RequestHandler.answer`; InvalidInput, too: there is no such action; Conflict:
                see `WorkspaceEditReader.files`.
        """
        operation = self.query.operation
        if not self.session.supports(_METHODS[operation]):
            raise Unavailable(
                f"{self.session.name} does not support {operation}. Use edit_file or apply_patch."
            )
        await self.session.sync_files(self.workspace)
        match operation:
            case "rename":
                return await self._rename()
            case "format":
                return await self._format()
            case "codeAction":
                return await self._action()

    async def _rename(self) -> CodeEdit:
        place = asked_place(self.query, self.document.lines)
        position = CONVERTER.unstructure(self._position(place))

        async def ask() -> object:
            return _in_order(await self._request(position=position, newName=self.query.new_name))

        if not self.session.is_indexed:
            await self.session.query_until_stable(ask)
        if not self.session.is_indexed:
            raise Unavailable(
                f"{self.session.name} is still reading the project and could miss a place. Try again later."
            )
        symbol = symbol_at(self.document.lines[place.line], place.index)
        edit = await self._checked(ask, f"rename {symbol} to {self.query.new_name}", place.note)
        return replace(edit, symbol=symbol)

    async def _format(self) -> CodeEdit:
        is_tabs, width = indentation(self.document.lines)
        options = {"tabSize": width, "insertSpaces": not is_tabs}

        async def ask() -> object:
            edits = await self._request(options=options)
            return {"changes": {self.document.uri: edits or []}}

        return await self._checked(ask, f"format {self.query.path}")

    async def _action(self) -> CodeEdit:
        asked, note = self._range()
        context = {"diagnostics": await self._diagnostics(asked), "triggerKind": 1}
        params = {"range": CONVERTER.unstructure(asked), "context": context}
        if not self.query.action:
            actions = tuple(map(_listed, await self._actions(params)))
            return CodeEdit(title="", actions=actions, source=self.session.name, notes=(note,) * bool(note))
        notes: list[str] = []

        async def ask() -> object:
            chosen = _chosen(self.query.action, await self._actions(params))
            if chosen.get("edit") is None and self.session.resolves_actions():
                resolved = await self.session.request("codeAction/resolve", chosen)
                chosen = resolved if is_object(resolved) else chosen
            edit, command = chosen.get("edit"), chosen.get("command")
            if edit is not None:
                notes[:] = [_NOT_RUN] * (command is not None)
                return edit
            return await self._edit_of_command(command if is_object(command) else chosen)

        edit = await ask()
        if edit is None:
            raise Unavailable(
                f"{self.session.name} offers '{self.query.action}' as a command that may change more than it "
                "tells, and such commands are not run. Nothing was changed; edit_file and apply_patch can "
                "make the change."
            )
        return await self._checked(ask, self.query.action, note, *notes)

    async def _edit_of_command(self, action: Mapping[str, object]) -> object | None:
        """Return the edit of a command of the protocol; None for one that is not run."""
        command, arguments = action.get("command"), action.get("arguments")
        given = arguments[0] if is_list(arguments) and len(arguments) == 1 else None
        if is_object(given) and given.keys() & _EDIT_KEYS and given.keys() <= _EDIT_KEYS:
            return given
        if isinstance(command, str) and command in _EDIT_COMMANDS:
            return await self.session.edit_of_command(command, arguments)
        return None

    async def _checked(self, ask: Callable[[], Awaitable[object]], title: str, *notes: str) -> CodeEdit:
        """Return the change for the files as they are now.

        A server says no version of files that are not open. So the edit is requested again after the files
        were read: if nothing changed meanwhile, and the edit is the same, it is about what was read.
        """
        edit = await self.session.query_current(ask, self.workspace)
        for _ in range(_ATTEMPTS):
            if edit is None:
                raise Unavailable(f"{self.session.name} proposes no change here. Check the position.")
            files = await WorkspaceEditReader(self.session, self.workspace, self.refuses).files(edit)
            again = await self.session.query_current(ask, self.workspace)
            if again == edit:
                notes = tuple(filter(None, notes))
                return CodeEdit(title=title, files=files, source=self.session.name, notes=notes)
            edit = again
        raise Conflict(
            f"Files changed each time {self.session.name} answered. Try again. Nothing was changed."
        )

    async def _request(self, **params: object) -> object:
        return await self.session.request_for(self.document, _METHODS[self.query.operation], **params)

    async def _actions(self, params: Mapping[str, object]) -> list[dict[str, object]]:
        """Return the code actions that can be chosen, as the server sent them."""
        found = await self._request(**params)
        if found is not None and not is_list(found):
            raise ProtocolError(MALFORMED)
        return [
            one
            for one in (found or [])[:MOST_ACTIONS]
            if is_object(one) and isinstance(one.get("title"), str) and one.get("disabled") is None
        ]

    async def _diagnostics(self, asked: types.Range) -> list[object]:
        """Return the diagnostics of a range: a server offers fixes for those that it is sent."""
        patience = self.session.limits.action_diagnostics
        last = await self.session.diagnostics(self.document, patience)
        items = None if last is None else last.items
        return [item for item in items if _touches(item, asked)] if is_list(items) else []

    def _range(self) -> tuple[types.Range, str]:
        """Return the range that is asked about, the symbol, the line, or without either the file, and a note
        on it."""
        query, lines = self.query, self.document.lines
        last = len(lines) - 1
        start, end = AskedPlace(0, 0), AskedPlace(last, len(lines[last]))
        if query.symbol or query.character is not None:
            start = asked_place(query, lines)
            end = replace(start, index=start.index + len(query.symbol if query.character is None else ""))
        elif query.line is not None:
            start = asked_place(replace(query, character=1), lines)
            if start.line < last:
                # What is missing at the end of a line is reported at the start of the next.
                end = AskedPlace(start.line + 1, 0)
            line = lines[start.line]
            start = AskedPlace(start.line, len(line) - len(line.lstrip()))
        return types.Range(self._position(start), self._position(end)), start.note

    def _position(self, place: AskedPlace) -> types.Position:
        units = to_units(self.document.lines[place.line], place.index, self.session.encoding)
        return types.Position(line=place.line, character=units)


def _in_order(edit: object) -> object:
    """Return an edit with its files in order: some servers list them in another order each time."""
    changes = edit.get("documentChanges") if is_object(edit) else None
    if not is_object(edit) or not is_list(changes):
        return edit
    texts = [step for step in changes if is_object(step) and "kind" not in step]
    if len(texts) < len(changes):
        return edit
    return {**edit, "documentChanges": sorted(texts, key=lambda step: str(step.get("textDocument")))}


def _title(action: Mapping[str, object]) -> str:
    return " ".join(str(action["title"]).split())[:_MOST_TITLE]


def _listed(action: Mapping[str, object]) -> str:
    kind = action.get("kind")
    return f"{_title(action)} [{kind[:_MOST_TITLE]}]" if isinstance(kind, str) and kind else _title(action)


def _chosen(title: str, actions: Sequence[Mapping[str, object]]) -> Mapping[str, object]:
    """Return the action with a title. Raises: InvalidInput: there is none, or there are several."""
    found = [action for action in actions if _title(action) == title]
    if len(found) == 1:
        return found[0]
    if found:
        raise InvalidInput(
            f"{len(found)} actions have the title '{title}'. Give `line`, and `query` or `character`, of the "
            "one that is meant."
        )
    titles = "; ".join(dict.fromkeys(map(_title, actions)))
    raise InvalidInput(
        f"There is no action '{title}' here. {f'There are: {titles}' if titles else 'There are none at all.'}"
    )


def _touches(diagnostic: object, asked: types.Range) -> bool:
    try:
        place = parse_as(diagnostic.get("range") if is_object(diagnostic) else None, types.Range)
    except ProtocolError:
        return False
    return place.start <= asked.end and asked.start <= place.end
