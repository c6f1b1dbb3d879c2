"""The roots that a client declares. They can only narrow the roots of the server.

A client of the handshake protocol (<= 2025-11-25) that declares roots is asked for them at its first call.
An answer that is empty or fails narrows nothing, because many clients declare roots and name none. From the
first list with a root on, the last list restricts the client, also an empty one. Other clients work in the
roots of the server; the stateless protocol (2026-07-28) deprecates roots.
"""

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import anyio
import mcp_types as mcp
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import BaseModel

from mcp_toolserver.protocol.resources.client_identity import state_of
from mcp_toolserver.protocol.translate import Context, is_stateless
from mcp_toolserver.runtime.windows_paths import WindowsPaths

_SECONDS = 5.0
"""How long a client may take to name its roots."""

_ATTEMPTS = 3
"""How often a client that fails to answer is asked, because a call waits for each answer."""

_NAMED = "mcp_toolserver.roots"
"""The key of a `_Named` in the state of a connection."""


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


class ClientRoots:
    """Asks each connection until it answers, and again after each list_changed notification."""

    def __init__(self, windows: WindowsPaths | None = None, *, ignored: bool = False) -> None:
        self._windows = windows
        self._ignored = ignored

    async def of(self, context: Context) -> tuple[str, ...] | None:
        """The absolute paths of the client's roots; None if it is not restricted to any."""
        declared = context.session.client_capabilities
        if self._ignored or declared is None or declared.roots is None:
            return None
        if is_stateless(context):
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
                    roots = await _listed(context)
        except (TimeoutError, MCPError, ValueError):
            named.attempts -= 1
            return
        named.attempts = 0
        if roots or named.folders is not None:
            paths = (file_path(root.uri, self._windows) for root in roots)
            named.folders = tuple(path for path in paths if path is not None and "\0" not in path)


async def _listed(context: Context) -> list[_Root]:
    answer = await context.session.send_request(
        mcp.ListRootsRequest(),
        _Answer,
        metadata=ServerMessageMetadata(related_request_id=context.request_id),
    )
    return answer.roots


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
