"""Identifies the client of a request, which owns handles, listed resources and subscriptions.

A connection identifies its client. A stateless client has none over HTTP; there, clients that send the same
name count as one.
"""

import secrets
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp_types.version import is_version_at_least

from mcp_toolserver.capabilities.call_scope import UNCONNECTED
from mcp_toolserver.protocol.translate import MODERN

_CONNECTION = "_connection"
"""A private attribute of the SDK's session."""


class ClientIds:
    """Assigns ids to clients. Calls `forget` when a handshake connection ends.

    `only` is the id of the only client of the transport, if there can be no other.
    """

    def __init__(self, forget: Callable[[str], None], *, only: str = "") -> None:
        self._forget = forget
        self._only = only
        self._names: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self.connections: dict[str, Connection] = {}
        """Handshake connections, which can receive notifications at any time."""

    def id_for(self, context: ServerRequestContext[Any, Any]) -> str:
        """The id of the client of a request; all clients share one if the SDK hides its connections."""
        connection: Connection | None = getattr(context.session, _CONNECTION, None)
        if connection is None:
            return self._only
        if not connection.has_standalone_channel:
            client = connection.client_params
            named = f" {client.client_info.name} {client.client_info.version}" if client else ""
            return self._only or f"{UNCONNECTED}{named}"
        channel = connection.outbound
        if (known := self._names.get(channel)) is not None:
            return known
        # Unique across servers, because stored data outlives them.
        self._names[channel] = name = self._only or f"connection {secrets.token_hex(16)}"
        if not is_version_at_least(connection.protocol_version, MODERN):
            self.connections[name] = connection
            connection.exit_stack.callback(self._left, name)
        return name

    def _left(self, name: str) -> None:
        del self.connections[name]
        self._forget(name)
