"""Identifies the client of a request, which owns handles, listed resources and subscriptions.

A connection identifies its client. A stateless client has none over HTTP; there, clients that send the same
name count as one, if they also have the same named token.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from mcp.server.connection import Connection
from mcp_types.version import is_version_at_least

from mcp_toolserver.capabilities.call_scope import UNCONNECTED
from mcp_toolserver.protocol.translate import MODERN, Context

MAX_STATELESS = 256
"""Stateless clients of one user; with more, what the least recent one has is removed, because nothing else
limits the names that clients give themselves."""


class ClientIds:
    """Assigns ids to clients. Calls `forget` when a handshake connection ends.

    `only` is the id of the only client of the transport, if there can be no other. `user` is the name whose
    token all these clients have; empty without named tokens.
    """

    def __init__(self, forget: Callable[[str], None], *, only: str = "", user: str = "") -> None:
        self._forget = forget
        self._only = only
        self._user = user
        self._stateless: OrderedDict[str, None] = OrderedDict()
        """The ids given to stateless clients of `user`; the most recent is last."""
        self._names: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self.connections: dict[str, Connection] = {}
        """Handshake connections, which can receive notifications at any time."""

    def id_for(self, context: Context) -> str:
        """The id of the client of a request; all clients share one if the SDK hides its connections."""
        if (connection := _connection(context)) is None:
            return self._only
        if not connection.has_standalone_channel:
            return self._only or self._stateless_id(connection)
        channel = connection.outbound
        if (known := self._names.get(channel)) is not None:
            return known
        # Unique across servers, because stored data outlives them.
        self._names[channel] = name = self._only or f"connection {secrets.token_hex(16)}"
        if not is_version_at_least(connection.protocol_version, MODERN):
            self.connections[name] = connection
            connection.exit_stack.callback(self._left, name)
        return name

    def forget_stateless(self) -> None:
        """Forget the stateless clients of the user, none of which will return."""
        while self._stateless:
            self._forget(self._stateless.popitem()[0])

    def _stateless_id(self, connection: Connection) -> str:
        client = connection.client_params
        named = f" {client.client_info.name} {client.client_info.version}" if client else ""
        if not self._user:
            return f"{UNCONNECTED}{named}"
        # The colon keeps it apart from every id without a user.
        name = f"{UNCONNECTED}:{self._user}{named}"
        self._stateless[name] = None
        self._stateless.move_to_end(name)
        if len(self._stateless) > MAX_STATELESS:
            self._forget(self._stateless.popitem(last=False)[0])
        return name

    def _left(self, name: str) -> None:
        del self.connections[name]
        self._forget(name)


def state_of(context: Context) -> dict[str, Any]:
    """What is stored for the connection of a request; it ends with the connection."""
    connection = _connection(context)
    return {} if connection is None else connection.state


def _connection(context: Context) -> Connection | None:
    # A private attribute of the SDK's session.
    return getattr(context.session, "_connection", None)
