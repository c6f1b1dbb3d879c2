"""Formats a change that a language server proposes: its files, and a diff of bounded size."""

from collections.abc import Iterator, Mapping, Sequence

from mcp_toolserver.capabilities.code import CodeEdit, ProposedFile
from mcp_toolserver.capabilities.files import CanonicalPath, Previous
from mcp_toolserver.text.edit.unified_diff import unified
from mcp_toolserver.text.undo_note import brief_undo_note, undo_help

DIFF_CHARACTERS = 20_000
"""Of the diffs of all files together."""

_FILE_BYTES = 200_000
"""Of the diff of one file before the whole is cut."""

_MOST_FILES = 100
"""Files that are listed."""


def edit_text(edit: CodeEdit, replaced: Mapping[CanonicalPath, Previous | None] | None) -> str:
    """Format a change. `replaced` has what became of the contents; None if the change is only proposed."""
    return "\n".join(_parts(edit, replaced)).rstrip("\n")


def _parts(edit: CodeEdit, replaced: Mapping[CanonicalPath, Previous | None] | None) -> Iterator[str]:
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
    yield cut_middle("".join(_diffs(edit.files)), DIFF_CHARACTERS)


def _line(file: ProposedFile) -> str:
    edits = f"{file.edits} edit{'s' * (file.edits != 1)}"
    if file.like is not None:
        return f"- {file.like} moved to {file.path}: {edits}"
    return f"- {file.path}: {'new file' if file.before is None else edits}"


def _diffs(files: Sequence[ProposedFile]) -> Iterator[str]:
    texts = {one.path: (one.before or b"").decode("utf-8-sig", "replace") for one in files}
    for one in files:
        if one.after is not None:
            source, after = one.like or one.path, one.after.decode("utf-8-sig", "replace")
            yield unified(texts[source], after, source, to=one.path, limit=_FILE_BYTES)


def cut_middle(text: str, limit: int) -> str:
    """Return `text` with whole lines left out in the middle, where it has more than `limit` characters."""
    if len(text) <= limit:
        return text
    start = text.rfind("\n", 0, limit // 2) + 1
    end = text.find("\n", len(text) - limit // 2) + 1
    left_out = text.count("\n", start, end)
    return f"{text[:start]}[{left_out} lines in the middle of the diff are left out]\n{text[end:]}"
