"""Replace, insert or delete one cell of a Jupyter notebook. read_file shows the cells with their ids and
numbers. Changing the source of a code cell clears its outputs; the rest of the file stays unchanged.
"""

from typing import TYPE_CHECKING, Literal

from mcp_toolserver import tool as t
from mcp_toolserver.text.lines.encoding import Encoding, detect
from mcp_toolserver.text.undo_note import undo_notes

if TYPE_CHECKING:
    from mcp_toolserver.text.notebook.edit import EditedNotebook


class NotebookEdit(t.Args):
    path: t.WorkspacePath = t.Field(
        description="Path of the .ipynb file, relative to the first root or absolute"
    )
    edit_mode: Literal["replace", "insert", "delete"] = t.Field(
        default="replace", description="What to do with the cell"
    )
    cell_id: str | None = t.Field(
        default=None,
        description="Id of the cell (or give cell_number); insert puts the new cell after it, or last",
    )
    cell_number: int | None = t.Field(
        default=None,
        ge=0,
        description="Number of the cell, from 0; for insert, the number that the new cell gets",
    )
    new_source: str | None = t.Field(
        default=None, min_length=0, description="Whole new source of the cell; required to replace or insert"
    )
    cell_type: Literal["code", "markdown", "raw"] | None = t.Field(
        default=None, description="Type of the cell; default: unchanged, or code for a new cell"
    )
    expected_sha256: str | None = t.Field(
        default=None,
        pattern="^[0-9a-fA-F]{64}$",
        description="SHA-256 (hex) of the current file; if it differs, nothing is written",
    )

    @t.model_validator(mode="after")
    def _is_whole(self) -> "NotebookEdit":
        if self.edit_mode != "delete" and self.new_source is None:
            raise ValueError("new_source is needed to replace or insert a cell; it may be empty")
        if self.edit_mode == "delete" and (self.new_source or self.cell_type):
            raise ValueError("new_source and cell_type have no meaning with edit_mode delete; leave them out")
        if self.cell_id is not None and self.cell_number is not None:
            raise ValueError("give cell_id or cell_number, not both")
        if self.edit_mode != "insert" and self.cell_id is None and self.cell_number is None:
            raise ValueError("say which cell: give cell_id or cell_number, as read_file shows them")
        return self


async def run(args: NotebookEdit, rt: t.Runtime) -> t.Output:
    if not args.path.lower().endswith(".ipynb"):
        raise t.InvalidInput(f"'{args.path}' is not named as a notebook (.ipynb). Edit it with edit_file.")
    from mcp_toolserver.text.edit.unified_diff import unified
    from mcp_toolserver.text.notebook.edit import edit

    cell = args.cell_number if args.cell_id is None else args.cell_id
    done: list[tuple[EditedNotebook, str]] = []

    def change(raw: bytes) -> bytes:
        encoding = _encoding(args.path, raw)
        try:
            edited = edit(encoding.decode(raw), args.edit_mode, cell, args.new_source or "", args.cell_type)
        except (t.InvalidInput, t.NotFound) as error:
            raise type(error)(f"'{args.path}' {error}.") from None
        done.append((edited, unified(edited.before, edited.after, f"{args.path}#{edited.number}")))
        return encoding.encode(edited.text)

    written = await rt.fs.update(args.path, change, expected_sha256=args.expected_sha256)
    edited, diff = done[-1]
    return t.Output(
        "\n".join((_summary(args, edited, written), *_notes(args.path, edited, written), diff)).rstrip("\n"),
        sha256={args.path: written.sha256},
    )


def _encoding(path: str, raw: bytes) -> Encoding:
    encoding = detect(raw)
    if encoding is None or not encoding.name.startswith("utf"):
        name = "binary" if encoding is None else f"in {encoding.name}"
        raise t.InvalidInput(f"'{path}' is {name}; a notebook is text in UTF-8. Choose another file.")
    return encoding


def _summary(args: NotebookEdit, edited: "EditedNotebook", written: t.Written) -> str:
    named = f" id={edited.id}" if edited.id else ""
    done = {"replace": "Replaced", "insert": "Inserted", "delete": "Deleted"}[args.edit_mode]
    return (
        f"{done} cell {edited.number} ({edited.type}{named}) of {args.path}, which has {edited.cells} cells "
        f"({len(written.after)} bytes)."
    )


def _notes(path: str, edited: "EditedNotebook", written: t.Written) -> list[str]:
    notes: list[str] = []
    if written.after == written.before:
        return ["The content is the same as before."]
    if edited.type != edited.old_type and edited.old_type:
        notes.append(f"Its type was {edited.old_type}.")
    if edited.cleared:
        notes.append(f"Its outputs ({edited.cleared}) are cleared.")
    if edited.detached:
        notes.append("Its attachments are gone: a code cell has none.")
    return notes + undo_notes(path, written)


TOOL = t.ToolSpec(
    name="NotebookEdit",
    title="Edit notebook",
    needs=frozenset({t.Capability.FS_WRITE}),
    args=NotebookEdit,
    run=run,
    kind="edit",
    destructive=True,
    aliases=(
        t.Alias(
            "NotebookEdit",
            renames={
                "notebook_path": "path",
                "file_path": "path",
                "source": "new_source",
                "command": "edit_mode",
            },
        ),
    ),
    profile=t.Profile.DEFAULT,
)
