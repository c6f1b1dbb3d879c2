"""Says what became of the content that a call replaced."""

from collections.abc import Iterable

from mcp_toolserver.capabilities.files import Previous, Written


def undo_notes(path: str, written: Written) -> list[str]:
    """Return a line on how to put the previous content of `path` back, or why it is not kept, if there was
    any, and one on other names of the file, if it had any."""
    notes: list[str] = []
    if (previous := written.previous) is not None and previous.why:
        notes.append(f"The previous content of {path} is not kept for undo: {previous.why}.")
    elif previous is not None:
        notes.append(f'To undo: write_file, path "{path}", restore "{previous.handle}".')
    if written.links > 1:
        notes.append(f"The file had {written.links} hard links; the other names keep the old content.")
    return notes


def undo_help(replaced: Iterable[Previous | None]) -> list[str]:
    """Return the line that explains the ids of `brief_undo_note`; none if there is no id."""
    is_kept = any(one is not None and one.handle for one in replaced)
    return ["To undo a file: write_file with its path and the id after restore."] * is_kept


def brief_undo_note(previous: Previous | None) -> str:
    """Return the same for a list of files: a remark in brackets after a path, or nothing."""
    if previous is None:
        return ""
    return f" (not kept for undo: {previous.why})" if previous.why else f' (restore "{previous.handle}")'
