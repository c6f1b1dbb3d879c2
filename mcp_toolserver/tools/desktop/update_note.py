"""Append plain text to a note of the user in Apple Notes, or replace everything below its title. Name the
note by its exact title, or by the id that `list_notes` returned. Checklists become plain lists; notes with
attachments or a password are not changed.
"""

from typing import Literal

from mcp_toolserver import tool as t
from mcp_toolserver.text.desktop.notes import check_named


class UpdateNote(t.Args):
    title: str = t.Field(default="", max_length=500, description="Exact title of the note")
    body: str = t.Field(max_length=20_000, description="Plain text to write")
    mode: Literal["append", "replace"] = t.Field(
        default="append", description="Append at the end, or replace everything below the title"
    )
    folder: str = t.Field(default="", max_length=200, description="Folder in Notes: FOLDER or ACCOUNT/FOLDER")
    index: int = t.Field(
        default=0, ge=0, description="Which of several notes with that title, from 1, newest first"
    )
    id: str = t.Field(default="", max_length=500, description="Id of the note, instead of the title")

    @t.model_validator(mode="after")
    def _named(self) -> "UpdateNote":
        check_named(self.title, self.id)
        return self


async def run(args: UpdateNote, rt: t.Runtime) -> t.Output:
    which = t.NoteQuery(title=args.title, folder=args.folder, index=args.index, id=args.id)
    card = await rt.desktop.notes.update(which, args.body, append=args.mode == "append")
    done = "Added to" if args.mode == "append" else "Replaced the text of"
    return t.Output(f"{done} the note '{card.title}' in {card.folder}, id {card.id}.")


TOOL = t.ToolSpec(
    name="update_note",
    title="Change note",
    description=__doc__ or "",
    permission=t.Permission.DANGER_FULL_ACCESS,
    # A wrong title returns the titles that exist, and appending reads the note first.
    needs=frozenset({t.Capability.NOTES_READ, t.Capability.NOTES_WRITE}),
    args=UpdateNote,
    run=run,
    kind="other",
    subjects=lambda args: (args.title or args.id,),
    destructive=True,
    limits=t.Limits(deadline=120.0),
)
