"""The legacy HTTP+SSE transport: one stream per session at `/sse`, messages posted to `/messages/`.

When the stream's connection closes, the session ends and its calls are cancelled. An idle session is ended
after a timeout.
"""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing, suppress
from itertools import count
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_dual_era_loop
from mcp.server.sse import SseServerTransport
from starlette.types import ASGIApp, Receive, Scope, Send

from mcp_toolserver.protocol.counted_streams import ConnectionStats, Incoming, Outgoing
from mcp_toolserver.protocol.http.request_checks import Route
from mcp_toolserver.protocol.http.streamable import SECURITY
from mcp_toolserver.protocol.rate_limit import ConcurrencyLimiter

STREAM_PATH = "/sse"
MESSAGES_PATH = "/messages/"
ROUTES = {
    STREAM_PATH: Route(methods=frozenset({"GET"})),
    MESSAGES_PATH: Route(methods=frozenset({"POST"}), query=re.compile(rb"session_id=[0-9a-f]{32}")),
}


@asynccontextmanager
async def sse_endpoints(
    server: Server[Any], *, max_body: int, limiter: ConcurrencyLimiter, idle_seconds: float
) -> AsyncGenerator[ASGIApp, None]:
    """The two endpoints, while the context is open."""
    transport = SseServerTransport(MESSAGES_PATH, SECURITY, max_request_body_size=max_body)
    numbers = count()

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        async with transport.connect_sse(scope, receive, send) as (read, write):
            client = str(next(numbers))
            with (
                anyio.CancelScope() as idle,
                closing(ConnectionStats(limiter, client, idle, idle_seconds)) as stats,
            ):
                await serve_dual_era_loop(
                    server,
                    Incoming(read, write, stats),
                    Outgoing(write, stats),
                    lifespan_state=state,
                    init_options=server.create_initialization_options(),
                )

    async def endpoints(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == STREAM_PATH:
            await stream(scope, receive, send)
            return
        # The session may end between the acknowledgement and the delivery.
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await transport.handle_post_message(scope, receive, send)

    async with server.lifespan(server) as state:
        yield endpoints
