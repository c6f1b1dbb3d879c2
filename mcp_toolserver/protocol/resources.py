"""Resources: long results, and what is enforced."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import is_version_at_least

from mcp_toolserver.errors import NotFound
from mcp_toolserver.protocol import translate
from mcp_toolserver.protocol.feature import ToolServer, refuse_cursor

SECURITY_URI = "toolserver://security"

_RESOURCE_NOT_FOUND = -32002
"""Of the handshake era; since 2026-07-28 it is "invalid params"."""

_RESOURCE_LIMIT = 10 * 1024 * 1024
"""Bytes of one resource; longer ones are read in slices with read_file."""

_Context = ServerRequestContext[Any, Any]


class Outputs(Protocol):
    """Long results, by handle."""

    async def read(self, handle: str, limit: int) -> bytes:
        """Raises: NotFound: no such handle, or the text is longer than `limit` bytes."""
        ...


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What clients can read beside calling tools."""

    outputs: Outputs
    security: str
    """What is enforced here, for people and models to read."""
    shown: Callable[[str], str]
    """A text as it may leave the server."""

    def join(self, server: ToolServer) -> None:
        """Serve them."""
        server.add_request_handler("resources/list", mcp.PaginatedRequestParams, self.list_resources)
        server.add_request_handler(
            "resources/templates/list", mcp.PaginatedRequestParams, self.list_templates
        )
        server.add_request_handler("resources/read", mcp.ReadResourceRequestParams, self.read_resource)

    async def list_resources(
        self, _: _Context, params: mcp.PaginatedRequestParams | None
    ) -> mcp.ListResourcesResult:
        """What is enforced. Long results are named by the calls that made them, not listed."""
        refuse_cursor(params)
        security = mcp.Resource(
            name="security",
            uri=SECURITY_URI,
            description="What this server enforces, and by which layer.",
            mime_type="text/plain",
        )
        return mcp.ListResourcesResult(resources=[security])

    async def list_templates(
        self, _: _Context, params: mcp.PaginatedRequestParams | None
    ) -> mcp.ListResourceTemplatesResult:
        """The one template: results that were too long to send."""
        refuse_cursor(params)
        template = mcp.ResourceTemplate(
            name="full output",
            uri_template=translate.OUTPUT_URI + "{id}",
            description="The whole of a result that was cut.",
            mime_type="text/plain",
        )
        return mcp.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(
        self, context: _Context, params: mcp.ReadResourceRequestParams
    ) -> mcp.ReadResourceResult:
        """A long result, or what is enforced, as text."""
        uri = str(params.uri)
        if uri == SECURITY_URI:
            return _text(uri, self.security)
        try:
            if not uri.startswith(translate.OUTPUT_URI):
                raise NotFound("no such resource")
            content = await self.outputs.read(uri.removeprefix(translate.OUTPUT_URI), _RESOURCE_LIMIT)
            text = self.shown(content.decode(errors="replace"))
            if len(text) > _RESOURCE_LIMIT:
                raise NotFound("too long with its escapes")
        except NotFound:
            modern = is_version_at_least(context.protocol_version, translate.MODERN)
            code = mcp.INVALID_PARAMS if modern else _RESOURCE_NOT_FOUND
            raise MCPError(code, "Resource not found", {"uri": uri}) from None
        return _text(uri, text)


def _text(uri: str, text: str) -> mcp.ReadResourceResult:
    return mcp.ReadResourceResult(
        contents=[mcp.TextResourceContents(uri=uri, text=text, mime_type="text/plain")]
    )
