"""Change code with a language server: rename a symbol everywhere it is used, apply a code action (quick fix,
refactoring, organize imports), or format a file. All files change or none; returns the files and the diff.
Give the symbol as `line` with `query` (its name) or `character`. Without `action`, codeAction only lists what
is offered there. Needs a language server for the file; an action that is more than an edit is refused.
"""

from collections.abc import Iterator, Mapping, Sequence

from mcp_toolserver import tool as t
from mcp_toolserver.text.undo_note import brief_undo_note, undo_help

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


_PREVIEW = 20_000
"""Characters of the diffs of all files together, if the diff is what was asked for."""

_FILE_BYTES = 200_000
"""Of the diff of one file before the whole is cut."""

_MOST_FILES = 100
"""Files that are listed."""


def edit_text(edit: t.CodeEdit, replaced: Mapping[t.CanonicalPath, t.Previous | None] | None) -> str:
    """Format a change. `replaced` has what became of the contents; None if the change is only proposed."""
    return "\n".join(_parts(edit, replaced)).rstrip("\n")


def _parts(edit: t.CodeEdit, replaced: Mapping[t.CanonicalPath, t.Previous | None] | None) -> Iterator[str]:
    from mcp_toolserver.text.edit.unified_diff import ECHOED, cut_middle

    count = len({one.path for one in edit.files if one.after is not None})
    files = f"{count} file{'s' * (count != 1)}"
    if not edit.files:
        yield f"Nothing to change, says {edit.source}: {edit.title}."
    elif replaced is None:
        yield f"Preview of {edit.title}, by {edit.source}: would change {files}. Nothing was changed."
    else:
        yield f"Done: {edit.title}, by {edit.source}. Changed {files}."
    yield from (f"[{note}]" for note in edit.notes)
    undo = replaced or {}
    yield from undo_help(undo.values())
    shown = [one for one in edit.files if one.after is not None]
    yield from (f"{_line(one)}{brief_undo_note(undo.get(one.path))}" for one in shown[:_MOST_FILES])
    if len(shown) > _MOST_FILES:
        yield f"- and {len(shown) - _MOST_FILES} more files"
    yield cut_middle("".join(_diffs(edit.files)), _PREVIEW if replaced is None else ECHOED)


def _line(file: t.ProposedFile) -> str:
    edits = f"{file.edits} edit{'s' * (file.edits != 1)}"
    if file.like is not None:
        return f"- {file.like} moved to {file.path}: {edits}"
    return f"- {file.path}: {'new file' if file.before is None else edits}"


def _diffs(files: Sequence[t.ProposedFile]) -> Iterator[str]:
    from mcp_toolserver.text.edit.unified_diff import unified

    texts = {one.path: (one.before or b"").decode("utf-8-sig", "replace") for one in files}
    for one in files:
        if one.after is not None:
            source, after = one.like or one.path, one.after.decode("utf-8-sig", "replace")
            yield unified(texts[source], after, source, to=one.path, limit=_FILE_BYTES)


TOOL = t.ToolSpec(
    name="lsp_edit",
    title="Refactor code",
    needs=frozenset({t.Capability.LANGUAGES, t.Capability.FS_WRITE}),
    args=LspEdit,
    run=run,
    kind="edit",
    destructive=True,
    aliases=(t.Alias("lsp_edit", renames=_SPELLINGS),),
)
