"""Who a request comes from, as far as anything is listed to them or they are told of changes.

Where there is a connection, it is the connection. A client without a handshake has none over HTTP, and only
the server's token tells it from others; there, clients that call themselves the same are one.
"""

from collections.abc import Callable
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp_types.version import is_version_at_least

from mcp_toolserver.protocol.translate import MODERN

_CONNECTION = "_connection"
"""The SDK's session has it, and gives it to nobody."""


class Owners:
    """Knows every connection that has asked for something; `forget` gets one with a handshake that ends."""

    def __init__(self, forget: Callable[[str], None]) -> None:
        self._forget = forget
        self._numbers = count(1)
        self._names: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self.connections: dict[str, Connection] = {}
        """Those with a handshake, which can be told of changes at any time."""

    def of(self, context: ServerRequestContext[Any, Any]) -> str:
        """Whoever sent a request; an SDK without this knowledge makes everybody one."""
        connection: Connection | None = getattr(context.session, _CONNECTION, None)
        if connection is None:
            return ""
        if not connection.has_standalone_channel:
            client = connection.client_params
            return f"client {client.client_info.name} {client.client_info.version}" if client else "client"
        channel = connection.outbound
        if (known := self._names.get(channel)) is not None:
            return known
        self._names[channel] = name = f"connection {next(self._numbers)}"
        if not is_version_at_least(connection.protocol_version, MODERN):
            self.connections[name] = connection
            connection.exit_stack.callback(self._left, name)
        return name

    def _left(self, name: str) -> None:
        del self.connections[name]
        self._forget(name)
