"""Identifies the client of a request, and knows the roots that it declares.

The client owns handles, listed resources and subscriptions. A connection identifies its client. A stateless
client has none over HTTP; there, clients that send the same name count as one, if they also have the same
named token.

Roots can only narrow the roots of the server. A client of the handshake protocol (<= 2025-11-25) that
declares roots is asked for them at its first call. An answer that is empty or fails narrows nothing, because
many clients declare roots and name none. From the first list with a root on, the last list restricts the
client, also an empty one. Other clients work in the roots of the server; the stateless protocol (2026-07-28)
deprecates roots.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

import anyio
import mcp_types as mcp
from mcp.server.connection import Connection
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import is_version_at_least
from pydantic import BaseModel

from mcp_toolserver.capabilities.call_scope import UNCONNECTED
from mcp_toolserver.protocol.translate import MODERN, Context, is_stateless
from mcp_toolserver.runtime.windows_paths import WindowsPaths

GATEWAY = "mcp-toolserver-gateway"
"""The name that a server of this kind gives itself as the client of its upstream servers."""

MAX_STATELESS = 256
"""Stateless clients of one user; with more, what the least recent one has is removed, because nothing else
limits the names that clients give themselves."""

_SECONDS = 5.0
"""How long a client may take to name its roots."""

_ATTEMPTS = 3
"""How often a client that fails to answer is asked, because a call waits for each answer."""

_NAMED = "mcp_toolserver.roots"
"""The key of a `_Named` in the state of a connection."""


@dataclass(eq=False)
class ClientIds:
    """Assigns ids to clients. Calls `forget` when a handshake connection ends.

    `only` is the id of the only client of the transport, if there can be no other. `user` is the name whose
    token all these clients have; empty without named tokens.
    """

    forget: Callable[[str], None]
    only: str = ""
    user: str = ""
    connections: dict[str, Connection] = field(default_factory=dict[str, Connection])
    """Handshake connections, which can receive notifications at any time."""
    _stateless: OrderedDict[str, None] = field(default_factory=OrderedDict[str, None])
    """The ids given to stateless clients of `user`; the most recent is last."""
    _names: WeakKeyDictionary[Any, str] = field(default_factory=WeakKeyDictionary[Any, str])

    def id_for(self, context: Context) -> str:
        """The id of the client of a request; all clients share one if the SDK hides its connections."""
        if (connection := _connection(context)) is None:
            return self.only
        if not connection.has_standalone_channel:
            return self.only or self._stateless_id(connection)
        channel = connection.outbound
        if (known := self._names.get(channel)) is not None:
            return known
        # Unique across servers, because stored data outlives them.
        self._names[channel] = name = self.only or f"connection {secrets.token_hex(16)}"
        if not is_version_at_least(connection.protocol_version, MODERN):
            self.connections[name] = connection
            connection.exit_stack.callback(self._left, name)
        return name

    def forget_stateless(self) -> None:
        """Forget the stateless clients of the user, none of which will return."""
        while self._stateless:
            self.forget(self._stateless.popitem()[0])

    def _stateless_id(self, connection: Connection) -> str:
        client = connection.client_params
        named = f" {client.client_info.name} {client.client_info.version}" if client else ""
        if not self.user:
            return f"{UNCONNECTED}{named}"
        # The colon keeps it apart from every id without a user.
        name = f"{UNCONNECTED}:{self.user}{named}"
        self._stateless[name] = None
        self._stateless.move_to_end(name)
        if len(self._stateless) > MAX_STATELESS:
            self.forget(self._stateless.popitem(last=False)[0])
        return name

    def _left(self, name: str) -> None:
        del self.connections[name]
        self.forget(name)


def state_of(context: Context) -> dict[str, Any]:
    """What is stored for the connection of a request; it ends with the connection."""
    connection = _connection(context)
    return {} if connection is None else connection.state


T = TypeVar("T", bound=BaseModel)


async def ask_client(context: Context, request: mcp.ServerRequest, answer: type[T]) -> T:
    """What the client answers to a request that belongs to the call of `context`."""
    metadata = ServerMessageMetadata(related_request_id=context.request_id)
    return await context.session.send_request(request, answer, metadata=metadata)


def _connection(context: Context) -> Connection | None:
    # A private attribute of the SDK's session.
    return getattr(context.session, "_connection", None)


@dataclass(eq=False)
class _Named:
    """What one connection answered to roots/list."""

    generation: int = 0
    """Number of list_changed notifications."""
    attempts: int = _ATTEMPTS
    """How often the client may still be asked before its next notification."""
    folders: tuple[str, ...] | None = None
    """Those of the last valid answer; None before the first that names a place."""


class _Root(BaseModel):
    uri: str  # of any scheme: one that is no `file:` address does not invalidate the list


class _Answer(mcp.Result):
    roots: list[_Root]


@dataclass(frozen=True)
class ClientRoots:
    """Asks each connection until it answers, and again after each list_changed notification."""

    windows: WindowsPaths | None = None
    ignored: bool = False

    async def of(self, context: Context) -> tuple[str, ...] | None:
        """The absolute paths of the client's roots; None if it is not restricted to any."""
        declared = context.session.client_capabilities
        if self.ignored or declared is None or declared.roots is None or is_stateless(context):
            return None
        named = state_of(context).setdefault(_NAMED, _Named())
        if named.attempts > 0:
            await self._ask(context, named)
        return named.folders

    def changed(self, context: Context) -> None:
        """Ask again before the next call, and discard an answer that may be on its way."""
        if (named := state_of(context).get(_NAMED)) is not None:
            named.generation += 1
            named.attempts = _ATTEMPTS

    async def _ask(self, context: Context, named: _Named) -> None:
        """Ask the client now. If it fails to answer, its last list stays."""
        try:
            with anyio.fail_after(_SECONDS):
                generation = -1
                roots: list[_Root] = []
                while generation != named.generation:
                    generation = named.generation
                    roots = (await ask_client(context, mcp.ListRootsRequest(), _Answer)).roots
        except (TimeoutError, MCPError, ValueError):
            named.attempts -= 1
            return
        named.attempts = 0
        if roots or named.folders is not None:
            paths = (file_path(root.uri, self.windows) for root in roots)
            named.folders = tuple(path for path in paths if path is not None and "\0" not in path)


def file_path(uri: str, windows: WindowsPaths | None = None) -> str | None:
    """The absolute path of a local `file:` URI, decoded once; in WSL also of one that Windows uses.

    A URI with a query or a fragment is rejected: without them the path could name another, wider folder.
    """
    try:
        parts = urlsplit(uri)
        path = unquote(parts.path, errors="strict")
    except ValueError:
        return None
    plain = path.startswith("/") and not (parts.query or parts.fragment)
    host = "" if parts.netloc == "localhost" else parts.netloc
    found = windows and windows.local(f"//{host}{path}" if host else path)
    local = found or (None if host else path)
    return local if parts.scheme == "file" and plain else None
