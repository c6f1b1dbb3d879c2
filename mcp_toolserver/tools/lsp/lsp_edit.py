"""Change code with a language server: rename a symbol everywhere it is used, apply a code action (quick fix,
refactoring, organize imports), or format a file. All files change or none; returns the files and the diff.
Give the symbol as `line` with `query` (its name) or `character`. Without `action`, codeAction only lists what
is offered there. Needs a language server for the file; an action that is more than an edit is refused.
"""

from mcp_toolserver.tool import (
    Alias,
    Args,
    Capability,
    CodeEdit,
    CodeEditOperation,
    CodeEditQuery,
    Conflict,
    Contents,
    Field,
    FileChange,
    Output,
    Permission,
    Runtime,
    ToolSpec,
    WorkspacePath,
    model_validator,
)

_SPELLINGS = {
    "file_path": "path",
    "filePath": "path",
    "column": "character",
    "symbol": "query",
    "newName": "new_name",
    "title": "action",
    "dry_run": "preview",
}


class LspEdit(Args):
    operation: CodeEditOperation = Field(description="The kind of change to make")
    path: WorkspacePath = Field(description="File with the symbol, or file to format")
    line: int | None = Field(default=None, ge=1, description="Line number, from 1")
    character: int | None = Field(default=None, ge=1, description="Column in characters, from 1")
    query: str = Field(default="", max_length=200, description="Name of the symbol in the file or line")
    new_name: str = Field(
        default="",
        max_length=200,
        pattern=r"^\S*$",
        description="New name of the symbol; rename needs it",
    )
    action: str = Field(
        default="",
        max_length=200,
        description="Title of the code action to apply, as listed; empty lists them",
    )
    preview: bool = Field(default=False, description="Only show the diff, change nothing")

    @model_validator(mode="after")
    def _named(self) -> "LspEdit":
        if self.operation == "rename" and not self.new_name:
            raise ValueError("rename needs new_name, the new name of the symbol")
        return self


async def run(args: LspEdit, rt: Runtime) -> Output:
    from mcp_toolserver.text.code.edit_text import edit_text

    edit = await rt.languages.propose(
        CodeEditQuery(
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
        return Output(_listed(edit))
    if args.preview:
        for file in edit.files:
            await rt.fs.check_writable(file.path)
        return Output(edit_text(edit, None))

    def change(contents: Contents) -> tuple[FileChange, ...]:
        for file in edit.files:
            if contents[file.path] != file.before:
                raise Conflict(
                    f"'{file.path}' was changed by somebody meanwhile. No file was changed. Try again."
                )
        return tuple(FileChange(path=file.path, content=file.after, like=file.like) for file in edit.files)

    written = await rt.fs.update_all(tuple(file.path for file in edit.files), change)
    digests = {file.path: written[file.path].sha256 for file in edit.files if file.after is not None}
    replaced = {path: one.previous for path, one in written.items()}
    return Output(edit_text(edit, replaced), sha256=digests)


def _listed(edit: CodeEdit) -> str:
    lines = [f"- {one.title}{f' [{one.kind}]' * bool(one.kind)}" for one in edit.actions]
    noun = f"code action{'s' * (len(lines) != 1)}"
    count = f"[{len(lines)} {noun}, says {edit.source}; apply one with its title as `action`]"
    return "\n".join(
        (
            *lines,
            *(f"[{note}]" for note in edit.notes),
            count if lines else f"No code actions here, says {edit.source}.",
        )
    )


TOOL = ToolSpec(
    name="lsp_edit",
    title="Refactor code",
    description=__doc__ or "",
    permission=Permission.DANGER_FULL_ACCESS,
    needs=frozenset({Capability.LANGUAGES, Capability.FS_WRITE}),
    args=LspEdit,
    run=run,
    kind="edit",
    subjects=lambda args: (args.path,),
    destructive=True,
    aliases=(Alias("lsp_edit", renames=_SPELLINGS),),
)
