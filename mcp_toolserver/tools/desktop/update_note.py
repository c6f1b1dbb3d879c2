"""Add plain text to one of the user's notes in Apple Notes, or put it in place of all below the title. Name
the note by its exact title, or by the id that `list_notes` gave.
"""

from typing import Literal

from mcp_toolserver.text.notes import check_named
from mcp_toolserver.tool import (
    Args,
    Capability,
    Field,
    Limits,
    NoteQuery,
    Output,
    Permission,
    Runtime,
    ToolSpec,
    model_validator,
)


class UpdateNote(Args):
    title: str = Field(default="", max_length=500, description="Exact title")
    body: str = Field(max_length=20_000, description="Plain text")
    mode: Literal["append", "replace"] = Field(default="append", description="At the end, or in place of all")
    folder: str = Field(default="", max_length=200, description="FOLDER or ACCOUNT/FOLDER of Notes")
    index: int = Field(default=0, ge=0, description="Which of several with that title, from 1, newest first")
    id: str = Field(default="", max_length=500, description="In place of the title")

    @model_validator(mode="after")
    def _named(self) -> "UpdateNote":
        check_named(self.title, self.id)
        return self


async def run(args: UpdateNote, rt: Runtime) -> Output:
    which = NoteQuery(title=args.title, folder=args.folder, index=args.index, id=args.id)
    card = await rt.desktop.notes.update(which, args.body, append=args.mode == "append")
    done = "Added to" if args.mode == "append" else "Replaced the text of"
    return Output(f"{done} the note '{card.title}' in {card.folder}, id {card.id}.")


TOOL = ToolSpec(
    name="update_note",
    description=__doc__ or "",
    permission=Permission.DANGER_FULL_ACCESS,
    # Whoever names a note is told which there are, and text is added to what is read first.
    needs=frozenset({Capability.NOTES_READ, Capability.NOTES_WRITE}),
    args=UpdateNote,
    run=run,
    kind="other",
    subjects=lambda args: (args.title or args.id,),
    destructive=True,
    limits=Limits(deadline=120.0),
)
