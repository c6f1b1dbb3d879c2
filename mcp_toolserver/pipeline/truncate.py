"""The last stage of a call: cuts text over its limit and saves the whole text for the caller."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from mcp_toolserver.capabilities.call_scope import SavedOutput
from mcp_toolserver.text.lines.encoding import head_bytes, tail_bytes
from mcp_toolserver.tool_spec import Output


@dataclass(frozen=True)
class Fitted:
    """Text within its limit."""

    text: str
    truncated: bool
    saved_output: SavedOutput | None


_END_BYTES = 2_000
"""Kept of the end of a text that is cut: notes stand there."""


async def fit(output: Output, limit: int, save: Callable[[str], Awaitable[SavedOutput]]) -> Fitted:
    """Cut `output.text` in the middle, to `limit` UTF-8 bytes; exactly at the limit is not cut.

    A line in place of what is cut says how much it was, and the path of the whole text or why it could not be
    saved. An `OSError` of `save` does not fail the call.
    """
    if len(head_bytes(output.text, limit)) == len(output.text):
        return Fitted(output.text, output.truncated, output.saved_output)
    end = tail_bytes(output.text, min(_END_BYTES, limit // 4))
    start = head_bytes(output.text, limit - len(end.encode()))
    left = len(output.text.encode()) - len(start.encode()) - len(end.encode())
    try:
        saved_output = output.saved_output or await save(output.text)
    except OSError as error:
        saved_output = None
        how = f"could not be saved, because {error.strerror or error}"
    else:
        how = f'are left out; read all of it with read_file, path "{saved_output.path}"'
    return Fitted(f"{start}\n[{left} bytes {how}]\n{end}", truncated=True, saved_output=saved_output)
