"""The MCP server, and the protocol of the features that extend it."""

from typing import Any, Protocol

import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS


class ToolServer(Server[Any]):
    """The SDK's server; declares the capabilities of its features on every transport."""

    list_changed: NotificationOptions
    """The lists that can change, declared as `listChanged`."""
    experimental: dict[str, dict[str, Any]]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.list_changed = NotificationOptions()
        self.experimental = {}
        self.add_request_handler("server/discover", mcp.RequestParams, self.discover)

    @property
    def server_info_stamp(self) -> dict[str, Any]:
        """Name and version, which every result of the stateless protocol carries.

        The SDK would also repeat the description and the icon; only `discover` sends those.
        """
        return {"name": self.name, "version": self.version}

    async def discover(
        self, context: ServerRequestContext[Any, Any], _: mcp.RequestParams | None
    ) -> mcp.DiscoverResult:
        """The server's identity, capabilities and instructions."""
        identity = self.server_info.model_dump(by_alias=True, mode="json", exclude_none=True)
        return mcp.DiscoverResult(
            supported_versions=list(MODERN_PROTOCOL_VERSIONS),
            capabilities=self.get_capabilities(protocol_version=context.protocol_version),
            instructions=self.instructions,
            _meta={mcp.SERVER_INFO_META_KEY: identity},
        )

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> mcp.ServerCapabilities:
        """In the stateless protocol the SDK would declare every list as changing if any is, and omit the
        experimental capabilities."""
        found = super().get_capabilities(
            notification_options or self.list_changed,
            experimental_capabilities or self.experimental or None,
            extensions,
            protocol_version=protocol_version,
        )
        changes = self.list_changed
        for capability, changing in (
            (found.tools, changes.tools_changed),
            (found.prompts, changes.prompts_changed),
            (found.resources, changes.resources_changed),
        ):
            if capability is not None:
                capability.list_changed = changing
        return found

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """The SDK's HTTP sessions call this without arguments."""
        return super().create_initialization_options(
            notification_options or self.list_changed, experimental_capabilities, extensions
        )


class Feature(Protocol):
    """A part of the server that clients can see."""

    def join(self, server: ToolServer) -> None:
        """Add its handlers and capabilities to `server`."""
        ...


def refuse_cursor(params: mcp.PaginatedRequestParams | None) -> None:
    """Reject a cursor for a list of one page.

    Raises:
        MCPError: the client sent a cursor.
    """
    if params is not None and params.cursor:
        raise MCPError(mcp.INVALID_PARAMS, "Invalid cursor")
