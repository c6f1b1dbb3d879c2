"""The last stage of a call: cuts text over its limit and saves the whole text for the caller."""

from dataclasses import dataclass
from typing import Protocol

from mcp_toolserver.capabilities.call_scope import SavedOutput
from mcp_toolserver.text.lines.truncate import head_bytes
from mcp_toolserver.tool_spec import Output


class OutputSaver(Protocol):
    """Saves a long text for the caller."""

    async def save(self, text: str) -> SavedOutput:
        """Raises: OSError: the private folder cannot be written."""
        ...


@dataclass(frozen=True)
class Fitted:
    """Text within its limit."""

    text: str
    truncated: bool
    saved_output: SavedOutput | None


async def fit(output: Output, limit: int, saver: OutputSaver) -> Fitted:
    """Cut `output.text` to `limit` UTF-8 bytes; exactly at the limit is not cut.

    The last line says how much was cut, and the path of the whole text or why it could not be saved. A text
    that cannot be saved does not fail the call.
    """
    head = head_bytes(output.text, limit)
    if len(head) == len(output.text):
        return Fitted(output.text, output.truncated, output.saved_output)
    left = len(output.text.encode()) - len(head.encode())
    try:
        saved_output = output.saved_output or await saver.save(output.text)
    except OSError as error:
        note = f"[{left} more bytes were cut and could not be saved, because {error.strerror or error}]"
        return Fitted(f"{head}\n{note}", truncated=True, saved_output=None)
    note = f'[{left} more bytes were cut; read all of it with read_file, path "{saved_output.path}"]'
    return Fitted(f"{head}\n{note}", truncated=True, saved_output=saved_output)
