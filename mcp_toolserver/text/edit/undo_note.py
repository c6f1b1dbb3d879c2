"""Says what became of the content that a call replaced."""

from mcp_toolserver.capabilities.files import Previous


def undo_note(path: str, previous: Previous) -> str:
    """Return one line on how to put the previous content of `path` back, or why it is not kept."""
    if previous.why:
        return f"The previous content of {path} is not kept for undo: {previous.why}."
    return f'To undo: write_file, path "{path}", restore "{previous.handle}".'
