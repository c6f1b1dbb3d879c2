"""The gateway: the ASGI application in front of every HTTP endpoint.

It checks the request head (`request_checks`), finds the server of the client by its token (`members`), reads
the body within limits of size and time, applies the limits on requests in progress, and then passes the
request without its credentials to that server.
"""

from dataclasses import dataclass

from starlette.types import Message, Receive, Scope, Send

from mcp_toolserver.protocol.http.body import MemoryBudget, Posted, Reservation, message_in, read_body
from mcp_toolserver.protocol.http.members import Disconnects, Member, Members
from mcp_toolserver.protocol.http.request_checks import (
    RequestHead,
    Rules,
    authority,
    bearer_token,
    check_request,
)
from mcp_toolserver.protocol.http.response import Reply
from mcp_toolserver.protocol.rate_limit import ConcurrencyLimiter, Limiter, RequestLimits, is_counted
from mcp_toolserver.protocol.refusals import ENDING, REVOKED, Refusal

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
    """An ASGI application that passes accepted requests to the server of their client."""

    def __init__(self, members: Members, rules: Rules, bounds: Bounds) -> None:
        self._members = members
        self._rules = rules
        self._bounds = bounds
        self._streams = ConcurrencyLimiter(bounds.streams)
        self._room = MemoryBudget(LARGE_BODIES * bounds.max_body)
        self._disconnects = Disconnects()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        reply = Reply(send)
        head = head_of(scope)
        if self._disconnects.ended:
            await reply.refuse(ENDING)
        elif (refusal := check_request(head, self._rules)) is not None:
            await reply.refuse(refusal)
        elif (public := self._rules.routes[head.path].public) is not None:
            status, text = await public()
            await reply.answer(status, text, (b"content-type", b"text/plain"))
        else:
            await self._identify(head, scope, lambda: self._disconnects.receive(receive), reply)
            if self._disconnects.ended:
                await reply.finish()

    def end(self) -> None:
        """Start the shutdown: disconnect every request in progress and refuse new ones."""
        self._disconnects.end()

    async def _identify(self, head: RequestHead, scope: Scope, receive: Receive, reply: Reply) -> None:
        """Find the server of the client by its token, and let it serve the request."""
        token = bearer_token(head)
        member = token if isinstance(token, Refusal) else await self._members.of(token)
        if isinstance(member, Refusal):
            await reply.refuse(member)
            return
        with member.request():
            await self._serve(head, scope, lambda: member.disconnects.receive(receive), reply, member)
        if member.disconnects.ended and not self._disconnects.ended:
            await reply.finish(REVOKED)

    async def _serve(
        self, head: RequestHead, scope: Scope, receive: Receive, reply: Reply, member: Member
    ) -> None:
        bounds = self._bounds
        # The reservation lasts until the answer, because a call uses its arguments while it runs.
        with Reservation(self._room) as share:
            body = await read_body(head, receive, share, limit=bounds.max_body, seconds=bounds.body_seconds)
            posted = message_in(head, body) if isinstance(body, bytes) else body
            if isinstance(posted, Refusal):
                await reply.refuse(posted)
            elif isinstance(body, bytes) and posted is not None and not member.disconnects.ended:
                inner = {**scope, "headers": _inner_headers(scope), POSTED: posted}
                limiter = self._counted(head, posted, member)
                await self._pass(limiter, inner, _replayed(body, receive), reply, member)

    async def _pass(
        self, limiter: Limiter | None, scope: Scope, receive: Receive, reply: Reply, member: Member
    ) -> None:
        if limiter is None:
            await member.app(scope, receive, reply.send)
            return
        posted: Posted = scope[POSTED]
        client = client_of(scope, posted)
        if limiter is self._streams and member.name:
            client = member.name
        if (refusal := limiter.acquire(client, posted.method or "")) is not None:
            await reply.refuse(refusal, posted.id)
            return
        try:
            await member.app(scope, receive, reply.send)
        finally:
            limiter.release(client)

    def _counted(self, head: RequestHead, posted: Posted, member: Member) -> Limiter | None:
        """The limiter for a request; None if it is answered at once, such as a cancellation."""
        if head.method == "GET" or posted.method == "subscriptions/listen":
            return self._streams
        counts = posted.is_call and is_counted(posted.method or "")
        return member.limiter if counts and self._rules.routes[head.path].awaits else None


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
