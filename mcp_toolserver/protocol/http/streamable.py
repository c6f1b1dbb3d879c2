"""Streamable HTTP, both protocol eras, at one path.

In the modern era the SDK cancels a call whose client has gone. In the handshake era it lets the call run, for
a client that could come back for the answer; this server keeps no answers, so it cancels there as well.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcp_toolserver.protocol.body import Posted
from mcp_toolserver.protocol.checks import Route
from mcp_toolserver.protocol.gate import INNER_HOST, POSTED

PATH = "/mcp"
ROUTES = {PATH: Route(methods=frozenset({"GET", "POST", "DELETE"}), awaits=True)}

SECURITY = TransportSecuritySettings(
    enable_dns_rebinding_protection=True, allowed_hosts=[INNER_HOST], allowed_origins=[]
)
"""The gate has checked the names that the client used; the SDK sees only what the gate puts there."""


@asynccontextmanager
async def streamable_endpoint(
    server: Server[Any], *, max_body: int, max_sessions: int, idle_seconds: float
) -> AsyncGenerator[ASGIApp, None]:
    """The endpoint, as long as the context is open; leaving ends every session and cancels its calls."""
    sessions = StreamableHTTPSessionManager(
        server,
        event_store=None,
        json_response=False,
        stateless=False,
        security_settings=SECURITY,
        session_idle_timeout=idle_seconds,
        max_request_body_size=max_body,
        max_sessions=max_sessions,
    )
    async with sessions.run():
        yield CancelsWhenLeft(sessions.handle_request)


class CancelsWhenLeft:
    """Cancels a call in its session when the client closes the connection before the answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        posted: Posted = scope[POSTED]
        if not posted.is_call or posted.method == "initialize" or not _in_session(scope):
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(receive, send)
        await self._app(scope, exchange.receive, exchange.send)
        if exchange.left and not exchange.answered:
            await self._app(*_cancellation(scope, posted))


class _Exchange:
    """A request and its response, watched for which of the two sides ends it."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self.left = False
        self.answered = False

    async def receive(self) -> Message:
        message = await self._receive()
        self.left = self.left or message["type"] == "http.disconnect"
        return message

    async def send(self, message: Message) -> None:
        # Once the client has left, an end of the response is no answer: nobody got it.
        ends = message["type"] == "http.response.body" and not message.get("more_body", False)
        self.answered = self.answered or (ends and not self.left)
        await self._send(message)


def _in_session(scope: Scope) -> bool:
    return any(name == MCP_SESSION_ID_HEADER.encode() for name, _ in scope["headers"])


def _cancellation(scope: Scope, posted: Posted) -> tuple[Scope, Receive, Send]:
    """A request that cancels `posted` in the session that it was sent to."""
    params = {"requestId": posted.id, "reason": "the client closed the connection"}
    body = json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}).encode()
    framing = (b"content-length", b"transfer-encoding")
    headers = [(name, value) for name, value in scope["headers"] if name not in framing]
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        """Nobody waits for the answer."""

    return {**scope, "headers": headers, POSTED: Posted(method="notifications/cancelled")}, receive, send
