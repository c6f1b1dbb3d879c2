"""Requests to the script that controls Apple Notes, and its replies, both as JSON."""

import json
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, JsonValue

from mcp_toolserver.capabilities.desktop import NotesReply
from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.errors import InvalidInput, NotFound, ToolError, Unavailable

Title = Annotated[str, Field(max_length=500, description="Exact title of the note")]
Folder = Annotated[str, Field(max_length=200, description="Folder in Notes: FOLDER or ACCOUNT/FOLDER")]
Index = Annotated[
    int, Field(ge=0, description="Which of several notes with that title, from 1, newest first")
]
Id = Annotated[str, Field(max_length=500, description="Id of the note; the title then does not matter")]

NEEDS: Mapping[str, tuple[Capability, ...]] = {
    "list": (Capability.NOTES_READ,),
    "read": (Capability.NOTES_READ,),
    "create": (Capability.NOTES_WRITE,),
    # A wrong title returns the titles that exist, and appending reads the note first.
    "update": (Capability.NOTES_READ, Capability.NOTES_WRITE),
}
"""What the script does, and the capabilities for it."""

_REFUSALS: Mapping[str, tuple[type[ToolError], str]] = {
    "locked": (Unavailable, "The note is locked with a password. Ask the user to unlock or change it."),
    "attachments": (
        Unavailable,
        "The note has attachments, which would be lost. Create a new note, or ask the user to edit it.",
    ),
    "no account": (Unavailable, "Notes has no account. Ask the user to open Notes once."),
    "several folders": (InvalidInput, "Several folders have this name. Use ACCOUNT/FOLDER."),
    "no folder": (NotFound, "Notes has no folder '{folder}'. Ask the user for its name, or omit `folder`."),
    "no note": (NotFound, "There is no note with the {named}. Use `list_notes` to find it."),
    "no index": (NotFound, "There are {total} notes '{title}'; `index` goes from 1 to that."),
    "several": (InvalidInput, "{total} notes are called '{title}'. Give the `id` of one:\n{candidates}"),
}
"""What the problems mean that the script reports."""


def check_named(title: str, note_id: str) -> None:
    """Raises: ValueError: a note has no name."""
    if not (title or note_id):
        raise ValueError("give `title` or `id`")


def encode_request(do: str, request: Mapping[str, JsonValue]) -> str:
    """Return the standard input of the script; by default it returns at most 20 notes."""
    return json.dumps({"most": 20, **request, "do": do}, ensure_ascii=False)


def parse_reply(printed: bytes, do: str, request: Mapping[str, JsonValue]) -> NotesReply:
    """Read the reply of the script; it has exactly one note unless notes are listed.

    Raises:
        ToolError: the script refused the request, or the reply has no meaning.
    """
    try:
        reply = NotesReply.model_validate_json(printed)
    except ValueError:
        raise Unavailable("Notes gave an answer that has no meaning. Ask the user to open Notes.") from None
    if reply.problem or (do != "list" and len(reply.notes) != 1):
        raise _refusal(reply, request)
    return reply


def _refusal(reply: NotesReply, asked: Mapping[str, JsonValue]) -> ToolError:
    named = f"id '{asked['id']}'" if asked.get("id") else f"title '{asked.get('title')}'"
    candidates = "\n".join(
        f"{at}. {note.folder}, changed {note.changed}, id {note.id}" for at, note in enumerate(reply.notes, 1)
    )
    kind, why = _REFUSALS.get(reply.problem, _REFUSALS["no note"])
    return kind(why.format(**{**asked, "total": reply.total, "named": named, "candidates": candidates}))
