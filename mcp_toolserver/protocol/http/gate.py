"""The one gate in front of every HTTP endpoint.

A request passes `checks`, then its body is read whole (bounded in size and time), then it is counted against
what clients may have in progress; only then does the application behind see it, without the credentials it
came with.
"""

from dataclasses import dataclass

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mcp_toolserver.protocol.body import Posted, Room, Share, message_in, read_body
from mcp_toolserver.protocol.checks import Head, Rules, authority, objection
from mcp_toolserver.protocol.quota import Allowance, Quota
from mcp_toolserver.protocol.refusal import ENDING, Refusal
from mcp_toolserver.protocol.reply import Reply

LARGE_BODIES = 64
"""So many of the largest bodies are held at once, or more of smaller ones."""

POSTED = "mcp_toolserver.posted"
"""The key in the ASGI scope under which the application behind the gate finds the `Posted` message."""

INNER_HOST = "mcp-toolserver"
"""The Host that the application behind sees, whatever name of the server the client used."""

_SESSION = b"mcp-session-id"

_SPENT = frozenset({b"authorization", b"cookie", b"host", b"origin", b"proxy-authorization"})


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How much the gate lets through."""

    max_body: int
    """Bytes."""
    body_seconds: float
    streams: Allowance
    """Of event streams."""


class Gate:
    """An ASGI application that lets through what it may and holds the rest back."""

    def __init__(self, app: ASGIApp, rules: Rules, bounds: Bounds, quota: Quota) -> None:
        self._app = app
        self._rules = rules
        self._bounds = bounds
        self._quota = quota
        self._streams = Quota(bounds.streams)
        self._room = Room(LARGE_BODIES * bounds.max_body)
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
        elif (refusal := objection(head, self._rules)) is not None:
            await reply.refuse(refusal)
        elif self._rules.routes[head.path].public:
            await reply.answer(200, b"ok", (b"content-type", b"text/plain"))
        else:
            await self._serve(head, scope, lambda: self._heard(receive), reply)
            if self._ended:
                await reply.finish()

    def end(self) -> None:
        """Tell every request in progress that its client has left; from now on there is only a refusal.

        The applications behind know how to clean up after a client that leaves.
        """
        self._ended = True
        for scope in tuple(self._listening):
            scope.cancel()

    async def _heard(self, receive: Receive) -> Message:
        """What the client says next, or that this is the end."""
        if not self._ended:
            with anyio.CancelScope() as scope:
                self._listening.add(scope)
                try:
                    return await receive()
                finally:
                    self._listening.discard(scope)
        return {"type": "http.disconnect"}

    async def _serve(self, head: Head, scope: Scope, receive: Receive, reply: Reply) -> None:
        # Until it is answered: what a call was sent is in use for as long as it runs.
        with Share(self._room) as share:
            await self._read(head, scope, receive, reply, share)

    async def _read(self, head: Head, scope: Scope, receive: Receive, reply: Reply, share: Share) -> None:
        bounds = self._bounds
        body = await read_body(head, receive, share, limit=bounds.max_body, seconds=bounds.body_seconds)
        posted = message_in(head, body) if isinstance(body, bytes) else body
        if isinstance(posted, Refusal):
            await reply.refuse(posted)
        elif isinstance(body, bytes) and posted is not None:
            inner = {**scope, "headers": _inner_headers(scope), POSTED: posted}
            await self._pass(self._counted(head, posted), inner, _replayed(body, receive), reply)

    async def _pass(self, quota: Quota | None, scope: Scope, receive: Receive, reply: Reply) -> None:
        if quota is None:
            await self._app(scope, receive, reply.send)
            return
        posted: Posted = scope[POSTED]
        client = client_of(scope, posted)
        if (refusal := quota.enter(client, posted.method or "")) is not None:
            await reply.refuse(refusal, posted.id)
            return
        try:
            await self._app(scope, receive, reply.send)
        finally:
            quota.leave(client)

    def _counted(self, head: Head, posted: Posted) -> Quota | None:
        """Where a request counts; nowhere, when it passes at once, such as a cancellation."""
        if head.method == "GET" or posted.method == "subscriptions/listen":
            return self._streams
        return self._quota if posted.is_call and self._rules.routes[head.path].awaits else None


def client_of(scope: Scope, posted: Posted) -> str:
    """What tells the client from others: its session, or else its address and the name it gives itself."""
    session = next((value for name, value in scope["headers"] if name == _SESSION), None)
    if session is not None:
        return f"#{session.decode('latin-1')}"
    peer: tuple[str, int] | None = scope.get("client")
    return f"{peer[0] if peer else ''} {posted.client}"


def head_of(scope: Scope) -> Head:
    """The head of the request in an ASGI scope."""
    server: tuple[str, int | None] | None = scope.get("server")
    local = authority(server[0], server[1]) if server is not None and server[1] is not None else ""
    return Head(
        method=scope["method"],
        path=scope["path"],
        query=scope["query_string"],
        headers=tuple(scope["headers"]),
        local=local,
    )


def _inner_headers(scope: Scope) -> list[tuple[bytes, bytes]]:
    """The headers for the application behind: credentials and names have done their work at the gate."""
    kept = [(name, value) for name, value in scope["headers"] if name not in _SPENT]
    return [*kept, (b"host", INNER_HOST.encode())]


def _replayed(body: bytes, receive: Receive) -> Receive:
    """`receive` for the application behind: the body at once, then what the connection says."""
    whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return whole.pop() if whole else await receive()

    return replay
