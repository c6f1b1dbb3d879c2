"""Results that were too long to send: whoever has the handle of one can read it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import mcp_types as mcp

from mcp_toolserver.changes import Changes
from mcp_toolserver.errors import NotFound
from mcp_toolserver.protocol.source import LARGEST, Refused, Visitor, text
from mcp_toolserver.protocol.translate import OUTPUT_URI

TEMPLATE = OUTPUT_URI + "{id}"

_DAY_MS = 24 * 3600 * 1000
"""An output never changes; it may go, but then so has the server."""


class Outputs(Protocol):
    """Long results, by handle."""

    async def read(self, handle: str, limit: int) -> bytes:
        """Raises: NotFound: no such handle, or the text is longer than `limit` bytes."""
        ...


@dataclass(frozen=True, kw_only=True)
class LongOutputs:
    """Implements `Source`."""

    outputs: Outputs
    changes: Changes
    shown: Callable[[str], str]
    """A text as it may leave the server."""

    def listed(self, owner: str) -> Sequence[mcp.Resource]:
        """Those of the caller's own calls."""
        return [
            mcp.Resource(
                name="full output",
                uri=OUTPUT_URI + handle,
                description="The whole of a result that was cut.",
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
                description="The whole of a result that was cut.",
                mime_type="text/plain",
            )
        ]

    async def read(self, uri: str, _: Visitor) -> mcp.ReadResourceResult | None:
        """See `Source.read`."""
        if not uri.startswith(OUTPUT_URI):
            return None
        try:
            return self._text(uri, await self.outputs.read(uri.removeprefix(OUTPUT_URI), LARGEST))
        except NotFound as error:
            raise Refused(error.kind, str(error)) from None

    def watched(self, _: str, __: str) -> bool:
        """They never change."""
        return False

    async def complete(self, _: str, __: str, value: str, visitor: Visitor) -> Sequence[str]:
        """See `Source.complete`."""
        handles = self.changes.of(visitor.owner, "output")
        return [handle for handle in handles if handle.startswith(value)]

    def _text(self, uri: str, content: bytes) -> mcp.ReadResourceResult:
        shown = self.shown(content.decode(errors="replace"))
        if len(shown) > LARGEST:
            raise NotFound("With its escapes it is too long to be read at once; read_file reads it in parts.")
        return text(uri, shown, ttl_ms=_DAY_MS)
