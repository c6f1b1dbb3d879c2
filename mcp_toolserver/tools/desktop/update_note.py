"""Append plain text to a note of the user in Apple Notes, or replace everything below its title. Name the
note by its exact title, or by the id that `list_notes` returned. Checklists become plain lists; notes with
attachments or a password are not changed.
"""

from typing import Literal

from mcp_toolserver import tool as t
from mcp_toolserver.text.desktop.notes import Folder, Id, Index, Title, check_named


class UpdateNote(t.Args):
    title: Title = ""
    body: str = t.Field(max_length=20_000, description="Plain text to write")
    mode: Literal["append", "replace"] = t.Field(
        default="append", description="Append at the end, or replace everything below the title"
    )
    folder: Folder = ""
    index: Index = 0
    id: Id = ""

    @t.model_validator(mode="after")
    def _named(self) -> "UpdateNote":
        check_named(self.title, self.id)
        return self


async def run(args: UpdateNote, rt: t.Runtime) -> t.Output:
    (note,) = (await rt.desktop.note("update", **args.model_dump())).notes
    done = "Added to" if args.mode == "append" else "Replaced the text of"
    return t.Output(f"{done} the note '{note.title}' in {note.folder}, id {note.id}.")


TOOL = t.ToolSpec(
    name="update_note",
    title="Change note",
    # A wrong title returns the titles that exist, and appending reads the note first.
    needs=frozenset({t.Capability.NOTES_READ, t.Capability.NOTES_WRITE}),
    args=UpdateNote,
    run=run,
    subjects=lambda args: tuple(filter(None, (args.title, args.id))),
    destructive=True,
    limits=t.Limits(deadline=120.0),
)
