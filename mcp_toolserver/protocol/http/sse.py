"""The legacy HTTP+SSE transport: one stream per session at `/sse`, messages posted to `/messages/`.

When the stream's connection closes, the session ends and its calls are cancelled. A session in which nothing
happens for too long is ended.
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

from mcp_toolserver.protocol.checks import Route
from mcp_toolserver.protocol.quota import Quota
from mcp_toolserver.protocol.streamable import SECURITY
from mcp_toolserver.protocol.traffic import Incoming, Outgoing, Traffic

STREAM_PATH = "/sse"
MESSAGES_PATH = "/messages/"
ROUTES = {
    STREAM_PATH: Route(methods=frozenset({"GET"})),
    MESSAGES_PATH: Route(methods=frozenset({"POST"}), query=re.compile(rb"session_id=[0-9a-f]{32}")),
}


@asynccontextmanager
async def sse_endpoints(
    server: Server[Any], *, max_body: int, quota: Quota, idle_seconds: float
) -> AsyncGenerator[ASGIApp, None]:
    """The two endpoints, as long as the context is open."""
    transport = SseServerTransport(MESSAGES_PATH, SECURITY, max_request_body_size=max_body)
    numbers = count()

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        async with transport.connect_sse(scope, receive, send) as (read, write):
            client = str(next(numbers))
            with anyio.CancelScope() as idle, closing(Traffic(quota, client, idle, idle_seconds)) as traffic:
                await serve_dual_era_loop(
                    server,
                    Incoming(read, write, traffic),
                    Outgoing(write, traffic),
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
