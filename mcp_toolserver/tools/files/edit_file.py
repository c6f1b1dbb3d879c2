"""Replace exact text in a file and return the diff. Copy `old_string` from read_file without its line
numbers. If one replacement fails, the file stays unchanged.
"""

from typing import TYPE_CHECKING

from mcp_toolserver import tool as t
from mcp_toolserver.text.undo_note import undo_notes

if TYPE_CHECKING:
    from mcp_toolserver.text.edit.edit import Edited


class EditItem(t.Args):
    old_string: str = t.Field(description="Exact text to replace")
    new_string: str = t.Field(description="Replacement text")
    replace_all: bool = t.Field(default=False, description="Replace every occurrence")


class EditFile(t.Args):
    path: t.WorkspacePath = t.Field(description="Path of the file, relative to the first root or absolute")
    old_string: str | None = t.Field(
        default=None,
        description="Exact text to replace, with its indentation; must occur once unless replace_all is set",
    )
    new_string: str | None = t.Field(
        default=None, min_length=0, description="Text to put in its place; empty deletes the old text"
    )
    replace_all: bool = t.Field(default=False, description="Replace every occurrence of old_string")
    edits: tuple[EditItem, ...] = t.Field(
        default=(),
        strict=False,
        max_length=100,
        description="Several replacements, applied in order; use instead of old_string and new_string",
    )

    @t.model_validator(mode="after")
    def _one_form(self) -> "EditFile":
        pair = (self.old_string, self.new_string)
        if self.edits and (self.replace_all or pair != (None, None)):
            raise ValueError(
                "give either edits, or old_string and new_string, not both; inside edits, replace_all is set "
                "for each one"
            )
        if not self.edits and None in pair:
            raise ValueError(
                "give old_string (not empty) and new_string (which may be empty), or edits; to write a whole "
                "file use write_file"
            )
        return self


def _edit(args: EditFile, raw: bytes) -> "tuple[str, Edited, bytes]":
    """The text before, what became of it, and the content after."""
    from mcp_toolserver.text.edit.edit import Edit, apply
    from mcp_toolserver.text.lines.encoding import encoded, encoding_of

    edits = [
        Edit(item.old_string or "", item.new_string or "", item.replace_all) for item in args.edits or (args,)
    ]
    encoding = encoding_of(args.path, raw)
    before = encoding.decode(raw)
    edited = apply(before, edits)
    return before, edited, encoded(args.path, edited.content, encoding)


async def run(args: EditFile, rt: t.Runtime) -> t.Output:
    from mcp_toolserver.text.edit.unified_diff import unified

    done: list[tuple[Edited, str]] = []

    def change(raw: bytes) -> bytes:
        before, edited, after = _edit(args, raw)
        done.append((edited, unified(before, edited.content, args.path)))
        return after

    written = await rt.fs.update(args.path, change)
    edited, diff = done[-1]
    where = f" at {edited.named_lines}" if edited.lines else ""
    count = f"{edited.count} replacement{'s' * (edited.count != 1)}{where}"
    summary = f"Edited {args.path}: {count} ({len(written.after)} bytes)."
    text = "\n".join((summary, *_notes(args.path, edited, written), diff)).rstrip("\n")
    return t.Output(text, sha256={args.path: written.sha256})


def _notes(path: str, edited: "Edited", written: t.Written) -> list[str]:
    notes: list[str] = []
    if edited.flexible:
        notes.append("The text was found with other line endings than were sent; the file keeps its own.")
    if written.after == written.before:
        notes.append("The content is the same as before.")
        return notes
    return notes + undo_notes(path, written)


TOOL = t.ToolSpec(
    name="edit_file",
    title="Edit file",
    needs=frozenset({t.Capability.FS_WRITE}),
    args=EditFile,
    run=run,
    kind="edit",
    content_after=lambda args, raw: _edit(args, raw)[2],
    destructive=True,
    aliases=(t.Alias("Edit"), t.Alias("edit"), t.Alias("MultiEdit")),
    profile=t.Profile.LEAN,
)
