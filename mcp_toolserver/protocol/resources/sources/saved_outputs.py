"""Saved outputs: the full text of truncated results, readable by their owner."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import mcp_types as mcp

from mcp_toolserver.capabilities.change_events import ChangeEvents
from mcp_toolserver.errors import NotFound
from mcp_toolserver.protocol.resources.source import LARGEST, Refused, Visitor, text
from mcp_toolserver.protocol.translate import OUTPUT_URI

TEMPLATE = OUTPUT_URI + "{id}"

_DAY_MS = 24 * 3600 * 1000
"""A client may cache an output: it never changes."""


class Outputs(Protocol):
    """Long results, by handle."""

    async def read(self, handle: str, owner: str, limit: int) -> bytes:
        """Raises: NotFound: `owner` has no such handle, or the text is longer than `limit` bytes."""
        ...


@dataclass(frozen=True, kw_only=True)
class LongOutputs:
    """Implements `Source`."""

    outputs: Outputs
    changes: ChangeEvents
    shown: Callable[[str], str]
    """Redacts and escapes a text for output."""

    def listed(self, owner: str) -> Sequence[mcp.Resource]:
        """The outputs of the client's own calls."""
        return [
            mcp.Resource(
                name="full output",
                uri=OUTPUT_URI + handle,
                description="The full text of a truncated result.",
                mime_type="text/plain",
            )
            for handle in self.changes.of(owner, "output")
        ]

    def templates(self) -> Sequence[mcp.ResourceTemplate]:
        """See `Source.templates`."""
        return [
            mcp.ResourceTemplate(
                name="full output",
                uri_template=TEMPLATE,
                description="The full text of a truncated result.",
                mime_type="text/plain",
            )
        ]

    async def read(self, uri: str, visitor: Visitor) -> mcp.ReadResourceResult | None:
        """See `Source.read`."""
        if not uri.startswith(OUTPUT_URI):
            return None
        try:
            handle = uri.removeprefix(OUTPUT_URI)
            return self._text(uri, await self.outputs.read(handle, visitor.owner, LARGEST))
        except NotFound as error:
            raise Refused(error.kind, str(error)) from None

    def watched(self, _: str, __: str) -> bool:
        """They never change."""
        return False

    async def complete(self, _: str, __: str, value: str, visitor: Visitor) -> Sequence[str]:
        """See `Source.complete`."""
        return self.changes.of(visitor.owner, "output", value)

    def _text(self, uri: str, content: bytes) -> mcp.ReadResourceResult:
        shown = self.shown(content.decode(errors="replace"))
        if len(shown) > LARGEST:
            raise NotFound("With its escapes it is too long to be read at once; read_file reads it in parts.")
        return text(uri, shown, ttl_ms=_DAY_MS)
