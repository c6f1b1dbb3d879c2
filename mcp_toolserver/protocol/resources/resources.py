"""The handlers that list and read resources."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import is_version_at_least

from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.mcp_server import refuse_cursor
from mcp_toolserver.protocol.resources.source import Reading, Refused, Source, Visitor, Waiting
from mcp_toolserver.protocol.translate import MODERN

PAGE = 50

_NOT_FOUND = -32002
"""The error code of the handshake protocol; since 2026-07-28 it is "invalid params"."""

_FAULTS = frozenset({"internal", "timed_out", "unavailable"})
"""Errors that say nothing about the address."""

_Context = ServerRequestContext[Any, Any]


def not_found(uri: str, context: _Context, why: str = "") -> MCPError:
    """There is no such resource for this client."""
    code = mcp.INVALID_PARAMS if is_version_at_least(context.protocol_version, MODERN) else _NOT_FOUND
    return MCPError(code, f"Resource not found. {why}".rstrip(), {"uri": uri})


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Answers requests by asking the sources, in order; the first that knows an address decides."""

    handlers: Handlers
    sources: Sequence[Source]

    async def list_resources(
        self, context: _Context, params: mcp.PaginatedRequestParams
    ) -> mcp.ListResourcesResult:
        """One page, which starts after the last URI of the page before."""
        owner = self.handlers.client_ids.id_for(context)
        found = [resource for source in self.sources for resource in source.listed(owner)]
        start = _start(params.cursor, [resource.uri for resource in found])
        page = found[start : start + PAGE]
        more = start + PAGE < len(found)
        return mcp.ListResourcesResult(
            resources=page,
            next_cursor=_cursor(page[-1].uri) if more else None,
            ttl_ms=0,
            cache_scope="private",
        )

    async def list_templates(
        self, _: _Context, params: mcp.PaginatedRequestParams
    ) -> mcp.ListResourceTemplatesResult:
        """All on one page."""
        refuse_cursor(params)
        found = [template for source in self.sources for template in source.templates()]
        return mcp.ListResourceTemplatesResult(resource_templates=found)

    async def read(self, context: _Context, params: mcp.ReadResourceRequestParams) -> Reading:
        """Read the resource from its source."""
        caller, asker = self.handlers.caller(context, params)
        owner = self.handlers.client_ids.id_for(context)
        visitor = Visitor(context=context, owner=owner, dispatcher=self.handlers.dispatcher, caller=caller)
        try:
            with self.handlers.changes.on_behalf_of(owner):
                return await self._read(params.uri, visitor)
        except Waiting:
            assert asker.pending is not None
            return asker.pending
        except Refused as refused:
            if refused.kind in _FAULTS:
                raise MCPError(mcp.INTERNAL_ERROR, str(refused), {"uri": params.uri}) from None
            raise not_found(params.uri, context, str(refused)) from None

    async def _read(self, uri: str, visitor: Visitor) -> Reading:
        for source in self.sources:
            if (found := await source.read(uri, visitor)) is not None:
                return found
        raise not_found(uri, visitor.context)

    def watched(self, uri: str, owner: str) -> bool:
        """Whether this client may subscribe to the resource."""
        return any(source.watched(uri, owner) for source in self.sources)


def _cursor(uri: str) -> str:
    return base64.urlsafe_b64encode(uri.encode()).decode()


def _start(cursor: str | None, uris: Sequence[str]) -> int:
    """The index at which the page of `cursor` starts.

    Raises:
        MCPError: the cursor is invalid, or its resource no longer exists.
    """
    if not cursor:
        return 0
    try:
        return uris.index(base64.urlsafe_b64decode(cursor.encode()).decode()) + 1
    except (ValueError, binascii.Error):
        raise MCPError(mcp.INVALID_PARAMS, "Invalid cursor") from None
