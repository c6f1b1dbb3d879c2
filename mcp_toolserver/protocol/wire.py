"""What answers pass on their way out: no field that the client is too old for, no words of an exception."""

import logging
from typing import Any

import mcp_types as mcp
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from mcp_toolserver.protocol.ages import fitted

log = logging.getLogger(__name__)


async def presentable(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """A middleware. In the handshake era the SDK would send the text of an exception."""
    try:
        result = await call_next(ctx)
    except (MCPError, ValidationError):
        raise
    except Exception:
        # The log has the rest.
        log.exception("%s failed", ctx.method)
        raise MCPError(mcp.INTERNAL_ERROR, "Internal server error") from None
    return _for_its_age(result, ctx)


def _for_its_age(result: HandlerResult, ctx: ServerRequestContext[Any, Any]) -> HandlerResult:
    # The results of calls are made to fit where they are made.
    if not isinstance(result, dict) or ctx.method == "tools/call":
        return result
    version = result.get("protocolVersion") if ctx.method == "initialize" else ctx.protocol_version
    return fitted(ctx.method, result, str(version))
