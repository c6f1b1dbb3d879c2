"""The folders a client says it works in. They can only narrow what the server was started with."""

import weakref
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import anyio
import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import is_version_at_least

from mcp_toolserver.protocol.translate import MODERN

_SECONDS = 5.0
"""How long a client may take to name its roots; one that does not has no opinion."""

_Context = ServerRequestContext[Any, Any]


_STALE: Sequence[str] = ()
"""In place of what has to be asked again; a client without roots says None."""


class ClientRoots:
    """Asks each connection once, and again after it says that its roots have changed."""

    def __init__(self) -> None:
        self._known: dict[int, Sequence[str] | None] = {}

    @property
    def clients(self) -> int:
        """How many connections are remembered."""
        return len(self._known)

    async def of(self, context: _Context) -> Sequence[str] | None:
        """The client's roots, None for no opinion. Only handshake clients have any (deprecated since)."""
        declared = context.session.client_capabilities
        client = context.session.client_params
        if declared is None or declared.roots is None or client is None:
            return None
        if is_version_at_least(context.protocol_version, MODERN):
            return None
        key = id(client)
        if key not in self._known:
            weakref.finalize(client, self._known.pop, key)
            self._known[key] = _STALE
        if self._known[key] is _STALE:
            self._known[key] = await _asked(context)
        return self._known[key]

    def changed(self, context: _Context) -> None:
        """Forget what the connection said before."""
        if (key := id(context.session.client_params)) in self._known:
            self._known[key] = _STALE


async def _asked(context: _Context) -> Sequence[str] | None:
    try:
        with anyio.fail_after(_SECONDS):
            answer = await context.session.send_request(
                mcp.ListRootsRequest(),
                mcp.ListRootsResult,
                metadata=ServerMessageMetadata(related_request_id=context.request_id),
            )
    except (TimeoutError, MCPError, ValueError):
        return None
    return [path for root in answer.roots if (path := _path(str(root.uri)))] or None


def _path(uri: str) -> str | None:
    """The path of a `file:` URI of this machine, decoded once."""
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" and parts.netloc in ("", "localhost") else None
