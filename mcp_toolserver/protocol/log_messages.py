"""Messages for the human, as log messages: the one way in which the protocol lets a server speak unasked.

A client with a handshake gets them all until it names a level. Since 2026-07-28 there is no such way; the
result of the call says the same in both eras, so nothing is lost where none is sent.
"""

import weakref
from typing import Any, get_args

import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp_types.version import is_version_at_least

from mcp_toolserver.protocol.translate import MODERN

_Context = ServerRequestContext[Any, Any]

LEVEL: mcp.LoggingLevel = "notice"
LOGGER = "message to the user"

_LEVELS: tuple[str, ...] = get_args(mcp.LoggingLevel)
"""The least urgent first."""


class Messages:
    """Sends messages, but none that a connection does not want."""

    def __init__(self) -> None:
        self._least: dict[int, str] = {}
        """By connection, the least urgent level that it wants."""

    @property
    def clients(self) -> int:
        """How many connections are remembered."""
        return len(self._least)

    async def set_level(self, context: _Context, params: mcp.SetLevelRequestParams) -> mcp.EmptyResult:
        """Heed `logging/setLevel`."""
        client = context.session.client_params
        if client is not None and id(client) not in self._least:
            weakref.finalize(client, self._least.pop, id(client), None)
        self._least[id(client)] = params.level
        return mcp.EmptyResult()

    async def send(self, context: _Context, message: str) -> None:
        """Send `message` within the call that `context` belongs to."""
        if is_version_at_least(context.protocol_version, MODERN):
            return
        least = self._least.get(id(context.session.client_params), _LEVELS[0])
        if _LEVELS.index(LEVEL) < _LEVELS.index(least):
            return
        told = mcp.LoggingMessageNotificationParams(level=LEVEL, logger=LOGGER, data=message)
        await context.session.send_notification(
            mcp.LoggingMessageNotification(params=told), context.request_id
        )
