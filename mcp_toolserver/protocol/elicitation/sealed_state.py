"""Seals the state that stateless clients carry for a call that waits for an answer.

The SDK's module is imported with the first such state, because it is a tenth of the server's imports and most
servers never ask a question.
"""

from functools import cached_property
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp_types.methods import is_input_required


class SealedState:
    """A middleware: handlers only get state that this server issued for the same call."""

    def __init__(self, audience: str) -> None:
        self._audience = audience

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if (ctx.params or {}).get("requestState") is not None:
            return await self._boundary(ctx, call_next)
        result = await call_next(ctx)
        if not is_input_required(result):
            return result

        async def given(_: ServerRequestContext[Any, Any]) -> HandlerResult:
            return result

        return await self._boundary(ctx, given)

    @cached_property
    def _boundary(self) -> ServerMiddleware[Any]:
        from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity

        return RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=self._audience)
