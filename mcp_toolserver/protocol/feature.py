"""What the server is put together from beside its tools."""

from typing import Any, Protocol

import mcp_types as mcp
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError


class ToolServer(Server[Any]):
    """The SDK's server, which declares on every transport what its features declare."""

    changes: NotificationOptions
    """Which lists may change, as clients of the handshake era are told."""
    experimental: dict[str, dict[str, Any]]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.changes = NotificationOptions()
        self.experimental = {}

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

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> mcp.ServerCapabilities:
        """The SDK asks without experimental capabilities where clients discover what there is."""
        return super().get_capabilities(
            notification_options,
            experimental_capabilities or self.experimental or None,
            extensions,
            protocol_version=protocol_version,
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
