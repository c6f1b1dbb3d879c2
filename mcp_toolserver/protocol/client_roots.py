"""The roots that a client declares. They can only narrow the roots of the server.

A client of the handshake protocol (<= 2025-11-25) that declares roots is restricted to them: until it names
at least one folder, its calls have no root, and the server asks again at every call. Other clients work in
the roots of the server; the stateless protocol (2026-07-28) deprecates roots.
"""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import anyio
import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import is_version_at_least

from mcp_toolserver.pipeline.call import ClientFolders
from mcp_toolserver.protocol.translate import MODERN
from mcp_toolserver.text.windows_paths import WindowsPaths

_SECONDS = 5.0
"""How long a client may take to name its roots."""

_Context = ServerRequestContext[Any, Any]

_AGAIN = (
    " It is asked again at the next call, so try once more. If that does not help, ask the user to check the "
    "roots of the client."
)
_LATE = f"the client declares roots, but did not answer roots/list within {_SECONDS:g} s.{_AGAIN}"
_ERROR = (
    "the client declares roots, but its answer to roots/list was an error or held something else than "
    f"addresses that start with file:.{_AGAIN}"
)
_NONE = (
    "the client declares roots, but named no folder of this machine as one. Ask the user to open a folder in "
    "the client, then try again."
)


@dataclass(eq=False)
class _Named:
    """The answer of one connection to roots/list."""

    generation: int = 0
    """Number of list_changed notifications."""
    folders: ClientFolders | None = None
    """The last valid answer since the last notification."""


class ClientRoots:
    """Asks each connection until it names its roots, and again after each list_changed notification."""

    def __init__(self, windows: WindowsPaths | None = None) -> None:
        self._named: dict[int, _Named] = {}
        self._windows = windows

    @property
    def clients(self) -> int:
        """How many connections are remembered."""
        return len(self._named)

    async def of(self, context: _Context) -> ClientFolders | None:
        """The client's roots; None if it is not restricted to any."""
        declared = context.session.client_capabilities
        client = context.session.client_params
        if declared is None or declared.roots is None or client is None:
            return None
        if is_version_at_least(context.protocol_version, MODERN):
            return None
        key = id(client)
        if key not in self._named:
            weakref.finalize(client, self._named.pop, key)
            self._named[key] = _Named()
        named = self._named[key]
        return named.folders or await self._asked(context, named)

    def changed(self, context: _Context) -> None:
        """Discard the last answer, and one that may be on its way."""
        if (named := self._named.get(id(context.session.client_params))) is not None:
            named.generation += 1
            named.folders = None

    async def _asked(self, context: _Context, named: _Named) -> ClientFolders:
        """Ask the client now; store the answer in `named` if it names a folder."""
        try:
            with anyio.fail_after(_SECONDS):
                generation = -1
                paths: Sequence[str] = ()
                while generation != named.generation:
                    generation = named.generation
                    paths = await self._paths(context)
        except TimeoutError:
            return ClientFolders(why=_LATE)
        except (MCPError, ValueError):
            return ClientFolders(why=_ERROR)
        if not paths:
            return ClientFolders(why=_NONE)
        named.folders = ClientFolders(paths=tuple(paths))
        return named.folders

    async def _paths(self, context: _Context) -> Sequence[str]:
        answer = await context.session.send_request(
            mcp.ListRootsRequest(),
            mcp.ListRootsResult,
            metadata=ServerMessageMetadata(related_request_id=context.request_id),
        )
        return [path for root in answer.roots if (path := _path(str(root.uri), self._windows))]


def _path(uri: str, windows: WindowsPaths | None) -> str | None:
    """The absolute path of a local `file:` URI, decoded once; in WSL also of one that Windows uses.

    A URI with a query or a fragment is rejected: without them the path could name another, wider folder.
    """
    parts = urlsplit(uri)
    path = unquote(parts.path, errors="strict")
    plain = path.startswith("/") and "\0" not in path and not (parts.query or parts.fragment)
    host = "" if parts.netloc == "localhost" else parts.netloc
    found = windows and windows.local(f"//{host}{path}" if host else path)
    local = found or (None if host else path)
    return local if parts.scheme == "file" and plain else None
