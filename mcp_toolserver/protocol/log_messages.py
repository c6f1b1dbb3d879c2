"""Sends messages for the user as MCP log messages, the only unsolicited text that the protocol allows.

In the handshake protocol (<= 2025-11-25) a client gets all messages until it sets a level. In the stateless
protocol (2026-07-28) each request names the level, and without one nothing is sent. The result of the call
carries the same text.
"""

from typing import get_args

import mcp_types as mcp
from mcp.server.connection import allowed_log_levels

from mcp_toolserver.protocol.resources.client_identity import state_of
from mcp_toolserver.protocol.translate import Context, is_stateless

LEVEL: mcp.LoggingLevel = "notice"
LOGGER = "message to the user"

_LEVELS: tuple[str, ...] = get_args(mcp.LoggingLevel)
"""The least urgent first."""

_LEVEL = "mcp_toolserver.log_level"
"""The key of the least urgent level in the state of a connection."""


async def set_level(context: Context, params: mcp.SetLevelRequestParams) -> mcp.EmptyResult:
    """Handle `logging/setLevel`, which asks for messages at or above a level on this connection."""
    state_of(context)[_LEVEL] = params.level
    return mcp.EmptyResult()


async def send_message(context: Context, message: str) -> bool:
    """Send `message` within the call that `context` belongs to; return whether the client wants it."""
    if not _is_wanted(context):
        return False
    params = mcp.LoggingMessageNotificationParams(level=LEVEL, logger=LOGGER, data=message)
    await context.session.send_notification(mcp.LoggingMessageNotification(params=params), context.request_id)
    return True


def _is_wanted(context: Context) -> bool:
    if is_stateless(context):
        return LEVEL in allowed_log_levels(context.protocol_version, context.meta)
    return _LEVELS.index(LEVEL) >= _LEVELS.index(state_of(context).get(_LEVEL, _LEVELS[0]))
