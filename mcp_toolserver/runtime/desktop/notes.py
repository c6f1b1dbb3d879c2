"""Reads and writes the user's notes in Apple Notes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from mcp_toolserver.capabilities.notes import Note, NoteCard, NoteCards, NoteQuery
from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.errors import InvalidInput, NotFound, TimedOut, ToolError, Unavailable
from mcp_toolserver.runtime.desktop.helper_process import DesktopHelpers
from mcp_toolserver.text.desktop.failures import DIALOG_WAITS
from mcp_toolserver.text.desktop.notes import CardReply, NotesReply, below_title, notes_script, parse_reply
from mcp_toolserver.text.desktop.osascript import encode_request

SECONDS = 100.0
"""The first call waits while macOS asks the user; the answer holds for later calls."""

_MOST_BYTES = 2 << 20
_MOST_CANDIDATES = 20

_REFUSALS: Mapping[str, tuple[type[ToolError], str]] = {
    "locked": (Unavailable, "The note is locked with a password. Ask the user to unlock or change it."),
    "attachments": (
        Unavailable,
        "The note has attachments, which would be lost. Create a new note, or ask the user to edit it.",
    ),
    "no account": (Unavailable, "Notes has no account. Ask the user to open Notes once."),
    "several folders": (InvalidInput, "Several folders have this name. Use ACCOUNT/FOLDER."),
}


@dataclass(frozen=True, kw_only=True)
class AppleNotes:
    """Implements `capabilities.Notes`."""

    helpers: DesktopHelpers
    program: Callable[[Capability], str]
    """Returns the program for a capability, if the call may use it."""
    seconds: float = SECONDS

    async def listed(self, query: str, folder: str, most: int) -> NoteCards:
        program = self.program(Capability.NOTES_READ)
        answer = await self._ask(program, do="list", query=query, folder=folder, most=most)
        if answer.problem:
            raise _refusal(answer, NoteQuery(folder=folder))
        return NoteCards(notes=tuple(map(_card, answer.notes)), total=answer.total)

    async def read(self, which: NoteQuery, most: int) -> Note:
        answer = await self._ask(self.program(Capability.NOTES_READ), do="read", most=most, **_fields(which))
        card = _one(answer, which)
        whole = answer.total <= most
        return Note(card=card, text=below_title(card.title, answer.text), whole=whole)

    async def create(self, title: str, body: str, folder: str) -> NoteCard:
        program = self.program(Capability.NOTES_WRITE)
        answer = await self._ask(program, do="create", title=title, body=body, folder=folder)
        return _one(answer, NoteQuery(title=title, folder=folder))

    async def update(self, which: NoteQuery, body: str, *, append: bool) -> NoteCard:
        self.program(Capability.NOTES_READ)
        answer = await self._ask(
            self.program(Capability.NOTES_WRITE), do="update", body=body, append=append, **_fields(which)
        )
        return _one(answer, which)

    async def _ask(self, program: str, **request: JsonValue) -> NotesReply:
        text = encode_request({"most": _MOST_CANDIDATES, **request})
        try:
            printed, _ = await self.helpers.output(
                notes_script(program), text=text, most=_MOST_BYTES, seconds=self.seconds
            )
            return parse_reply(printed)
        except TimedOut:
            raise TimedOut(
                f"Notes did not answer within {self.seconds:.0f} seconds. {DIALOG_WAITS}"
            ) from None
        except ValueError:
            raise Unavailable(
                "Notes gave an answer that has no meaning. Ask the user to open Notes."
            ) from None


def _fields(which: NoteQuery) -> dict[str, JsonValue]:
    return {"title": which.title, "folder": which.folder, "index": which.index, "id": which.id}


def _one(answer: NotesReply, which: NoteQuery) -> NoteCard:
    if answer.problem or len(answer.notes) != 1:
        raise _refusal(answer, which)
    return _card(answer.notes[0])


def _card(card: CardReply) -> NoteCard:
    return NoteCard(id=card.id, title=card.title, folder=card.folder, changed=card.changed)


def _refusal(answer: NotesReply, which: NoteQuery) -> ToolError:
    match answer.problem:
        case "no folder":
            return NotFound(
                f"Notes has no folder '{which.folder}'. Ask the user for its name, or omit `folder`."
            )
        case "no note" if answer.total:
            return NotFound(f"There are {answer.total} notes '{which.title}'; `index` goes from 1 to that.")
        case "several":
            lines = [
                f"{at}. {card.folder}, changed {card.changed}, id {card.id}"
                for at, card in enumerate(answer.notes, 1)
            ]
            return InvalidInput(
                "\n".join((f"{answer.total} notes are called '{which.title}'. Give the `id` of one:", *lines))
            )
        case problem if problem in _REFUSALS:
            kind, why = _REFUSALS[problem]
            return kind(why)
        case _:
            named = f"id '{which.id}'" if which.id else f"title '{which.title}'"
            return NotFound(f"There is no note with the {named}. Use `list_notes` to find it.")
