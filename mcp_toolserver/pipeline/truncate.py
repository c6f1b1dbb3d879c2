"""The last stage of a call: text over its limit is cut, and the whole is kept where the caller can get it."""

from dataclasses import dataclass
from typing import Protocol

from mcp_toolserver.capabilities.calls import Spill
from mcp_toolserver.spec import Output
from mcp_toolserver.text.clip import head_bytes


class Spiller(Protocol):
    """Keeps a long text for the caller."""

    async def spill(self, text: str) -> Spill:
        """Raises: OSError: the private folder cannot be written."""
        ...


@dataclass(frozen=True)
class Fitted:
    """Text within its limit."""

    text: str
    truncated: bool
    spill: Spill | None


async def fit(output: Output, limit: int, spiller: Spiller) -> Fitted:
    """Cut `output.text` to `limit` UTF-8 bytes; exactly at the limit is not cut.

    What is cut off is named in one last line, with where the whole lies.
    """
    head = head_bytes(output.text, limit)
    if len(head) == len(output.text):
        return Fitted(output.text, output.truncated, output.spill)
    spill = output.spill or await spiller.spill(output.text)
    left = len(output.text.encode()) - len(head.encode())
    note = f'[{left} more bytes were cut; read all of it with read_file, path "{spill.path}"]'
    return Fitted(f"{head}\n{note}", truncated=True, spill=spill)
