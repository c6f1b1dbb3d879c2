"""What the server is put together from beside its tools."""

from typing import Any, Protocol

import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS


class ToolServer(Server[Any]):
    """The SDK's server, which declares on every transport what its features declare."""

    changes: NotificationOptions
    """Which lists may change, as clients of the handshake era are told."""
    experimental: dict[str, dict[str, Any]]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.changes = NotificationOptions()
        self.experimental = {}
        self.add_request_handler("server/discover", mcp.RequestParams, self.discover)

    @property
    def server_info_stamp(self) -> dict[str, Any]:
        """What every answer without a handshake says of the server: no more than it must.

        The SDK would repeat the description and the icon in each; `discover` tells them once.
        """
        return {"name": self.name, "version": self.version}

    async def discover(
        self, context: ServerRequestContext[Any, Any], _: mcp.RequestParams | None
    ) -> mcp.DiscoverResult:
        """What the server is and can do."""
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
        """Without a handshake, the SDK would say that every list can change as soon as any can, and leave out
        the experimental."""
        found = super().get_capabilities(
            notification_options or self.changes,
            experimental_capabilities or self.experimental or None,
            extensions,
            protocol_version=protocol_version,
        )
        changes = self.changes
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
        """The SDK's sessions over HTTP ask without arguments; its other transports leave them to us."""
        return super().create_initialization_options(
            notification_options or self.changes, experimental_capabilities, extensions
        )


class Feature(Protocol):
    """A part of the server that clients can see."""

    def join(self, server: ToolServer) -> None:
        """Add its handlers to `server`, and what it declares."""
        ...


def refuse_cursor(params: mcp.PaginatedRequestParams | None) -> None:
    """There is one page, so nobody was given a cursor.

    Raises:
        MCPError: the client has one all the same.
    """
    if params is not None and params.cursor:
        raise MCPError(mcp.INVALID_PARAMS, "Invalid cursor")
