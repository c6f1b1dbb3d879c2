"""Create a note in Apple Notes with a title and plain text, in the given folder or the default one."""

from mcp_toolserver import tool as t


class CreateNote(t.Args):
    title: str = t.Field(
        min_length=1,
        max_length=200,
        pattern=r"^[^\n\r]*\S[^\n\r]*$",
        description="Title: the first line of the note",
    )
    body: str = t.Field(max_length=20_000, description="Plain text below the title")
    folder: str = t.Field(default="", max_length=200, description="Folder in Notes: FOLDER or ACCOUNT/FOLDER")


async def run(args: CreateNote, rt: t.Runtime) -> t.Output:
    card = await rt.desktop.notes.create(args.title, args.body, args.folder)
    return t.Output(f"Made the note '{card.title}' in {card.folder}, id {card.id}.")


TOOL = t.ToolSpec(
    name="create_note",
    title="Create note",
    description=__doc__ or "",
    permission=t.Permission.DANGER_FULL_ACCESS,
    needs=frozenset({t.Capability.NOTES_WRITE}),
    args=CreateNote,
    run=run,
    kind="other",
    subjects=lambda args: (args.title,),
    limits=t.Limits(deadline=120.0),
)
