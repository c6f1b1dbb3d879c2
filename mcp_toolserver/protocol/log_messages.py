"""Sends messages for the user as MCP log messages, the only unsolicited text that the protocol allows.

In the handshake protocol (<= 2025-11-25) a client gets all messages until it sets a level. In the stateless
protocol (2026-07-28) each request names the level, and without one nothing is sent. The result of the call
carries the same text.
"""

import weakref
from typing import Any, get_args

import mcp_types as mcp
from mcp.server.connection import allowed_log_levels
from mcp.server.context import ServerRequestContext
from mcp_types.version import is_version_at_least

from mcp_toolserver.protocol.translate import MODERN

_Context = ServerRequestContext[Any, Any]

LEVEL: mcp.LoggingLevel = "notice"
LOGGER = "message to the user"

_LEVELS: tuple[str, ...] = get_args(mcp.LoggingLevel)
"""The least urgent first."""


class Messages:
    """Sends messages at or above the level that each connection asked for."""

    def __init__(self) -> None:
        self._least: dict[int, str] = {}
        """By connection, the least urgent level that it asked for."""

    @property
    def clients(self) -> int:
        """How many connections are remembered."""
        return len(self._least)

    async def set_level(self, context: _Context, params: mcp.SetLevelRequestParams) -> mcp.EmptyResult:
        """Handle `logging/setLevel`."""
        client = context.session.client_params
        if client is not None and id(client) not in self._least:
            weakref.finalize(client, self._least.pop, id(client), None)
        self._least[id(client)] = params.level
        return mcp.EmptyResult()

    async def send(self, context: _Context, message: str) -> bool:
        """Send `message` within the call that `context` belongs to; return whether the client wants it."""
        if not self._wants(context):
            return False
        params = mcp.LoggingMessageNotificationParams(level=LEVEL, logger=LOGGER, data=message)
        await context.session.send_notification(
            mcp.LoggingMessageNotification(params=params), context.request_id
        )
        return True

    def _wants(self, context: _Context) -> bool:
        if is_version_at_least(context.protocol_version, MODERN):
            return LEVEL in allowed_log_levels(context.protocol_version, context.meta)
        least = self._least.get(id(context.session.client_params), _LEVELS[0])
        return _LEVELS.index(LEVEL) >= _LEVELS.index(least)
