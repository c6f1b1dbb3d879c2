"""Change code with a language server: rename a symbol everywhere it is used, apply a code action (quick fix,
refactoring, organize imports), or format a file. All files change or none; returns the files and the diff.
Give the symbol as `line` with `query` (its name) or `character`. Without `action`, codeAction only lists what
is offered there. Needs a language server for the file; an action that is more than an edit is refused.
"""

from mcp_toolserver import tool as t

_SPELLINGS = {
    "file_path": "path",
    "filePath": "path",
    "column": "character",
    "symbol": "query",
    "newName": "new_name",
    "title": "action",
    "dry_run": "preview",
}


class LspEdit(t.Args):
    operation: t.CodeEditOperation = t.Field(description="The kind of change to make")
    path: t.WorkspacePath = t.Field(description="File with the symbol, or file to format")
    line: int | None = t.Field(default=None, ge=1, description="Line number, from 1")
    character: int | None = t.Field(default=None, ge=1, description="Column in characters, from 1")
    query: str = t.Field(default="", max_length=200, description="Name of the symbol in the file or line")
    new_name: str = t.Field(
        default="",
        max_length=200,
        pattern=r"^\S*$",
        description="New name of the symbol; rename needs it",
    )
    action: str = t.Field(
        default="",
        max_length=200,
        description="Title of the code action to apply, as listed; empty lists them",
    )
    preview: bool = t.Field(default=False, description="Only show the diff, change nothing")

    @t.model_validator(mode="after")
    def _named(self) -> "LspEdit":
        if self.operation == "rename" and not self.new_name:
            raise ValueError("rename needs new_name, the new name of the symbol")
        return self


async def run(args: LspEdit, rt: t.Runtime) -> t.Output:
    from mcp_toolserver.text.code.edit_text import edit_text

    edit = await rt.languages.propose(
        t.CodeEditQuery(
            operation=args.operation,
            path=args.path,
            line=args.line,
            character=args.character,
            symbol=args.query,
            new_name=args.new_name,
            action=args.action,
        )
    )
    if args.operation == "codeAction" and not args.action:
        return t.Output(_listed(edit))
    if args.preview:
        for file in edit.files:
            await rt.fs.check_writable(file.path)
        return t.Output(edit_text(edit, None))

    def change(contents: t.Contents) -> tuple[t.FileChange, ...]:
        for file in edit.files:
            if contents[file.path] != file.before:
                raise t.Conflict(
                    f"'{file.path}' was changed by somebody meanwhile. No file was changed. Try again."
                )
        return tuple(t.FileChange(path=file.path, content=file.after, like=file.like) for file in edit.files)

    written = await rt.fs.update_all(tuple(file.path for file in edit.files), change)
    digests = {file.path: written[file.path].sha256 for file in edit.files if file.after is not None}
    replaced = {path: one.previous for path, one in written.items()}
    return t.Output(edit_text(edit, replaced), sha256=digests)


def _listed(edit: t.CodeEdit) -> str:
    count = f"{len(edit.actions)} code action{'s' * (len(edit.actions) != 1)}"
    last = f"[{count}, says {edit.source}; apply one with its title as `action`]"
    lines = (*(f"- {one}" for one in edit.actions), *(f"[{note}]" for note in edit.notes))
    return "\n".join((*lines, last if edit.actions else f"No code actions here, says {edit.source}."))


TOOL = t.ToolSpec(
    name="lsp_edit",
    title="Refactor code",
    description=__doc__ or "",
    permission=t.Permission.DANGER_FULL_ACCESS,
    needs=frozenset({t.Capability.LANGUAGES, t.Capability.FS_WRITE}),
    args=LspEdit,
    run=run,
    kind="edit",
    subjects=lambda args: (args.path,),
    destructive=True,
    aliases=(t.Alias("lsp_edit", renames=_SPELLINGS),),
)
