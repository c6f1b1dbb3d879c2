"""The gateway: the ASGI application in front of every HTTP endpoint.

It checks the request head (`request_checks`), reads the body within limits of size and time, applies the
limits on requests in progress, and then passes the request without its credentials to the inner application.
"""

from dataclasses import dataclass

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcp_toolserver.protocol.http.body import MemoryBudget, Posted, Reservation, message_in, read_body
from mcp_toolserver.protocol.http.errors import ENDING, Refusal
from mcp_toolserver.protocol.http.request_checks import RequestHead, Rules, authority, check_request
from mcp_toolserver.protocol.http.response import Reply
from mcp_toolserver.protocol.rate_limit import ConcurrencyLimiter, RequestLimits, is_counted

LARGE_BODIES = 64
"""The memory budget for bodies, in bodies of the largest size."""

POSTED = "mcp_toolserver.posted"
"""The key of the `Posted` message in the ASGI scope of the inner application."""

INNER_HOST = "mcp-toolserver"
"""The Host header that the inner application sees, whichever name of the server the client used."""

_SESSION = b"mcp-session-id"

_SPENT = frozenset({b"authorization", b"cookie", b"host", b"origin", b"proxy-authorization"})


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Limits on bodies and event streams."""

    max_body: int
    """Bytes."""
    body_seconds: float
    streams: RequestLimits
    """Limits on event streams."""


class Gateway:
    """An ASGI application that passes accepted requests to `app` and refuses the others."""

    def __init__(self, app: ASGIApp, rules: Rules, bounds: Bounds, limiter: ConcurrencyLimiter) -> None:
        self._app = app
        self._rules = rules
        self._bounds = bounds
        self._limiter = limiter
        self._streams = ConcurrencyLimiter(bounds.streams)
        self._room = MemoryBudget(LARGE_BODIES * bounds.max_body)
        self._ended = False
        self._listening: set[anyio.CancelScope] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        reply = Reply(send)
        head = head_of(scope)
        if self._ended:
            await reply.refuse(ENDING)
        elif (refusal := check_request(head, self._rules)) is not None:
            await reply.refuse(refusal)
        elif self._rules.routes[head.path].public:
            await reply.answer(200, b"ok", (b"content-type", b"text/plain"))
        else:
            await self._serve(head, scope, lambda: self._receive(receive), reply)
            if self._ended:
                await reply.finish()

    def end(self) -> None:
        """Start the shutdown: disconnect every request in progress and refuse new ones.

        The inner application already cleans up after a client that disconnects.
        """
        self._ended = True
        for scope in tuple(self._listening):
            scope.cancel()

    async def _receive(self, receive: Receive) -> Message:
        """The next ASGI message; a disconnect during the shutdown."""
        if not self._ended:
            with anyio.CancelScope() as scope:
                self._listening.add(scope)
                try:
                    return await receive()
                finally:
                    self._listening.discard(scope)
        return {"type": "http.disconnect"}

    async def _serve(self, head: RequestHead, scope: Scope, receive: Receive, reply: Reply) -> None:
        # The reservation lasts until the answer, because a call uses its arguments while it runs.
        with Reservation(self._room) as share:
            await self._read(head, scope, receive, reply, share)

    async def _read(
        self, head: RequestHead, scope: Scope, receive: Receive, reply: Reply, share: Reservation
    ) -> None:
        bounds = self._bounds
        body = await read_body(head, receive, share, limit=bounds.max_body, seconds=bounds.body_seconds)
        posted = message_in(head, body) if isinstance(body, bytes) else body
        if isinstance(posted, Refusal):
            await reply.refuse(posted)
        elif isinstance(body, bytes) and posted is not None:
            inner = {**scope, "headers": _inner_headers(scope), POSTED: posted}
            await self._pass(self._counted(head, posted), inner, _replayed(body, receive), reply)

    async def _pass(
        self, limiter: ConcurrencyLimiter | None, scope: Scope, receive: Receive, reply: Reply
    ) -> None:
        if limiter is None:
            await self._app(scope, receive, reply.send)
            return
        posted: Posted = scope[POSTED]
        client = client_of(scope, posted)
        if (refusal := limiter.acquire(client, posted.method or "")) is not None:
            await reply.refuse(refusal, posted.id)
            return
        try:
            await self._app(scope, receive, reply.send)
        finally:
            limiter.release(client)

    def _counted(self, head: RequestHead, posted: Posted) -> ConcurrencyLimiter | None:
        """The limiter for a request; None if it is answered at once, such as a cancellation."""
        if head.method == "GET" or posted.method == "subscriptions/listen":
            return self._streams
        counts = posted.is_call and is_counted(posted.method or "")
        return self._limiter if counts and self._rules.routes[head.path].awaits else None


def client_of(scope: Scope, posted: Posted) -> str:
    """Identifies the client: its session, or else its address and the name that it sends."""
    session = next((value for name, value in scope["headers"] if name == _SESSION), None)
    if session is not None:
        return f"#{session.decode('latin-1')}"
    peer: tuple[str, int] | None = scope.get("client")
    return f"{peer[0] if peer else ''} {posted.client}"


def head_of(scope: Scope) -> RequestHead:
    """The head of the request in an ASGI scope."""
    server: tuple[str, int | None] | None = scope.get("server")
    local = authority(server[0], server[1]) if server is not None and server[1] is not None else ""
    return RequestHead(
        method=scope["method"],
        path=scope["path"],
        query=scope["query_string"],
        headers=tuple(scope["headers"]),
        local=local,
    )


def _inner_headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    """The headers for the inner application, without credentials and the names that the client used."""
    kept = [(name, value) for name, value in scope["headers"] if name not in _SPENT]
    return [*kept, (b"host", INNER_HOST.encode())]


def _replayed(body: bytes, receive: Receive) -> Receive:
    """`receive` for the inner application: first the whole body, then the messages of the connection."""
    whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return whole.pop() if whole else await receive()

    return replay
