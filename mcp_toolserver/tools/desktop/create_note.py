"""Create a note in Apple Notes with a title and plain text, in the given folder or the default one."""

from mcp_toolserver import tool as t
from mcp_toolserver.text.desktop.notes import Folder


class CreateNote(t.Args):
    title: str = t.Field(
        min_length=1,
        max_length=200,
        pattern=r"^[^\n\r]*\S[^\n\r]*$",
        description="Title: the first line of the note",
    )
    body: str = t.Field(max_length=20_000, description="Plain text below the title")
    folder: Folder = ""


async def run(args: CreateNote, rt: t.Runtime) -> t.Output:
    (note,) = (await rt.desktop.note("create", **args.model_dump())).notes
    return t.Output(f"Made the note '{note.title}' in {note.folder}, id {note.id}.")


TOOL = t.ToolSpec(
    name="create_note",
    title="Create note",
    needs=frozenset({t.Capability.NOTES_WRITE}),
    args=CreateNote,
    run=run,
    subjects=lambda args: (args.title,),
    limits=t.Limits(deadline=120.0),
)
