"""The endpoints of HTTP: Streamable HTTP at one path, and the legacy pair of HTTP+SSE.

Streamable HTTP serves the handshake protocol (<= 2025-11-25) and the stateless one (2026-07-28). In the
stateless protocol the SDK cancels a call whose client disconnected. In the handshake protocol it lets the
call run, because a client could reconnect for the answer. This server stores no answers, so it cancels there
as well.

HTTP+SSE has one stream per session at `/sse`, and messages are posted to `/messages/`. When the stream's
connection closes, the session ends and its calls are cancelled. An idle session is ended after a timeout.
"""

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing, suppress
from itertools import count
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_dual_era_loop
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http import LAST_EVENT_ID_HEADER, MCP_SESSION_ID_HEADER
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcp_toolserver.protocol.http.gate import INNER_HOST, POSTED, HttpOptions, Posted, replayed
from mcp_toolserver.protocol.http.request_checks import Route
from mcp_toolserver.protocol.rate_limit import ConcurrencyLimiter, ConnectionStats, Incoming, Outgoing

PATH = "/mcp"
_ROUTE = Route(methods=frozenset({"GET", "POST", "DELETE"}), awaits=True)
ROUTES = {PATH: _ROUTE, f"{PATH}/": _ROUTE}

STREAM_PATH = "/sse"
MESSAGES_PATH = "/messages/"
SSE_ROUTES = {
    STREAM_PATH: Route(methods=frozenset({"GET"})),
    MESSAGES_PATH: Route(methods=frozenset({"POST"}), query=re.compile(rb"session_id=[0-9a-f]{32}")),
}

SECURITY = TransportSecuritySettings(
    enable_dns_rebinding_protection=True, allowed_hosts=[INNER_HOST], allowed_origins=[]
)
"""The gateway has checked Host and Origin, and replaces them before the SDK sees them."""


@asynccontextmanager
async def streamable_endpoint(
    options: HttpOptions, server: Server[Any], _: ConcurrencyLimiter
) -> AsyncGenerator[ASGIApp]:
    """The endpoint, while the context is open; its end closes every session and cancels its calls."""
    sessions = StreamableHTTPSessionManager(
        server,
        event_store=None,
        json_response=False,
        stateless=False,
        security_settings=SECURITY,
        session_idle_timeout=options.idle_seconds,
        max_request_body_size=options.max_body,
        max_sessions=options.max_sessions,
    )
    async with sessions.run():
        yield cancels_when_left(sessions.handle_request)


def cancels_when_left(app: ASGIApp) -> ASGIApp:
    """`app`, which cancels a call in its session when the client closes the connection before the answer."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        # No events are stored, and the SDK would answer Last-Event-ID with nothing.
        headers = [pair for pair in scope["headers"] if pair[0] != LAST_EVENT_ID_HEADER.encode()]
        scope = {**scope, "headers": headers}
        in_session = any(name == MCP_SESSION_ID_HEADER.encode() for name, _ in headers)
        posted: Posted = scope[POSTED]
        if not posted.is_call or posted.method == "initialize" or not in_session:
            await app(scope, receive, send)
            return
        left = answered = False

        async def received() -> Message:
            nonlocal left
            message = await receive()
            left = left or message["type"] == "http.disconnect"
            return message

        async def sent(message: Message) -> None:
            nonlocal answered
            # After the client disconnected, it does not receive the end of the response.
            ends = message["type"] == "http.response.body" and not message.get("more_body", False)
            answered = answered or (ends and not left)
            await send(message)

        await app(scope, received, sent)
        if left and not answered:
            await app(*_cancellation(scope, receive, posted))

    return serve


def _cancellation(scope: Scope, receive: Receive, posted: Posted) -> tuple[Scope, Receive, Send]:
    """A notification that cancels `posted` in its session, after which `receive` gives the disconnect."""
    params = {"requestId": posted.id, "reason": "the client closed the connection"}
    body = json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}).encode()
    framing = (b"content-length", b"transfer-encoding")
    headers = [(name, value) for name, value in scope["headers"] if name not in framing]
    scope = {**scope, "headers": headers, POSTED: Posted(method="notifications/cancelled")}

    async def send(message: Message) -> None:
        """Discard the response: the client disconnected."""

    return scope, replayed(body, receive), send


@asynccontextmanager
async def sse_endpoints(
    options: HttpOptions, server: Server[Any], limiter: ConcurrencyLimiter
) -> AsyncGenerator[ASGIApp]:
    """The two endpoints, while the context is open."""
    transport = SseServerTransport(MESSAGES_PATH, SECURITY, max_request_body_size=options.max_body)
    numbers = count()

    async def endpoints(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != STREAM_PATH:
            # The session may end between the acknowledgement and the delivery.
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await transport.handle_post_message(scope, receive, send)
            return
        async with transport.connect_sse(scope, receive, send) as (read, write):
            client = str(next(numbers))
            with (
                anyio.CancelScope() as idle,
                closing(ConnectionStats(limiter, client, idle, options.idle_seconds)) as stats,
            ):
                await serve_dual_era_loop(
                    server,
                    Incoming(read, write, stats),
                    Outgoing(write, stats),
                    lifespan_state=state,
                    init_options=server.create_initialization_options(),
                )

    async with server.lifespan(server) as state:
        yield endpoints
