"""The middleware that hides the text of exceptions and removes fields that older clients do not know."""

import logging
from typing import Any

import mcp_types as mcp
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from mcp_toolserver.protocol.version_compat import downgrade

log = logging.getLogger(__name__)


_TOO_EARLY = (
    "{} came before initialize. Send initialize first, or a protocol version in each request: "
    f'_meta["{mcp.PROTOCOL_VERSION_META_KEY}"].'
)


async def error_middleware(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Replace unexpected exceptions; in the handshake protocol the SDK would send their text."""
    try:
        result = await call_next(ctx)
    except ValidationError:
        raise
    except MCPError as error:
        if _came_too_early(error, ctx):
            raise MCPError(mcp.INVALID_REQUEST, _TOO_EARLY.format(ctx.method)) from None
        raise
    except Exception:
        # Only the log has the details.
        log.exception("%s failed", ctx.method)
        raise MCPError(mcp.INTERNAL_ERROR, "Internal server error") from None
    return _downgraded(result, ctx)


def _came_too_early(error: MCPError, ctx: ServerRequestContext[Any, Any]) -> bool:
    """Whether the SDK refused a request before the handshake, which it does with empty data."""
    is_refusal = error.error.code == mcp.INVALID_PARAMS and error.error.data == ""
    return is_refusal and ctx.method != "initialize" and ctx.session.client_params is None


def _downgraded(result: HandlerResult, ctx: ServerRequestContext[Any, Any]) -> HandlerResult:
    # `translate.result` already downgrades the results of calls.
    if not isinstance(result, dict) or ctx.method == "tools/call":
        return result
    version = result.get("protocolVersion") if ctx.method == "initialize" else ctx.protocol_version
    return downgrade(ctx.method, result, str(version))
