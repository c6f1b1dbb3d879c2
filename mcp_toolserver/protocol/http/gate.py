"""The gateway: the ASGI application in front of every HTTP endpoint.

It checks the request head (`request_checks`), finds the server of the client by its token (`members`), reads
the body within limits of size and time, applies the limits on requests in progress, and then passes the
request without its credentials to that server.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio
from mcp_types import RequestId
from pydantic_core import from_json
from starlette.types import Message, Receive, Scope, Send

from mcp_toolserver.errors import SettingsError
from mcp_toolserver.protocol.http.members import Disconnects, Member, Members
from mcp_toolserver.protocol.http.request_checks import (
    RequestHead,
    Rules,
    authority,
    bearer_token,
    check_request,
)
from mcp_toolserver.protocol.http.tokens import MIN_TOKEN
from mcp_toolserver.protocol.rate_limit import UNCOUNTED, ConcurrencyLimiter, RequestLimits
from mcp_toolserver.protocol.refusals import (
    ENDING,
    FULL,
    INVALID_ID,
    NOT_JSON,
    NOT_ONE_MESSAGE,
    REVOKED,
    SHIELDS,
    TOO_SLOW,
    Refusal,
    too_large,
)

LARGE_BODIES = 64
"""The memory budget for bodies, in bodies of the largest size."""

POSTED = "mcp_toolserver.posted"
"""The key of the `Posted` message in the ASGI scope of the inner application."""

INNER_HOST = "mcp-toolserver"
"""The Host header that the inner application sees, whichever name of the server the client used."""

_SESSION = b"mcp-session-id"

_SPENT = frozenset({b"authorization", b"cookie", b"host", b"origin", b"proxy-authorization"})

_NAME = 128
"""Maximum characters of a client's name."""


@dataclass(frozen=True, kw_only=True)
class Posted:
    """The fields of a JSON-RPC message that the gateway needs; empty if the body has none."""

    method: str | None = None
    id: RequestId | None = None
    client: str = ""
    """The client's name, if the message carries it."""

    @property
    def is_call(self) -> bool:
        """Whether it is a request, which expects an answer."""
        return self.method is not None and self.id is not None


@dataclass(frozen=True, kw_only=True)
class HttpOptions:
    host: str = "127.0.0.1"
    token: str | None = field(default=None, repr=False)
    """The only token; None with named tokens."""
    names: tuple[str, ...] = ()
    """More names of this server in the Host header. One with a port means exactly that, one without means
    the name at every port, because only the name protects from other web pages."""
    max_body: int = 4 * 1024 * 1024
    max_sessions: int = 256
    """Also bounds the open event streams."""
    limits: RequestLimits = field(default_factory=RequestLimits)
    max_connections: int = 512
    max_connections_per_peer: int = 384
    """Fewer than all, so that one address cannot shut out the others."""
    idle_seconds: float = 1800.0
    """Until a session without a request in progress is closed."""
    header_seconds: float = 10.0
    body_seconds: float = 10.0
    keep_alive_seconds: int = 30
    ending_seconds: float = 5.0
    """How long requests may take to end at shutdown; a cancelled call kills its processes in this time."""
    unready: Callable[[], Awaitable[Sequence[str]]] | None = None
    """Names what keeps the server from doing its work, for `/readyz`; None if nothing can."""

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < MIN_TOKEN:
            raise SettingsError(f"The token for HTTP must have at least {MIN_TOKEN} characters.")


class MemoryBudget:
    """The memory for the bodies of all requests together."""

    def __init__(self, size: int) -> None:
        self.left = size
        """Bytes."""

    @contextmanager
    def reservation(self) -> Generator[Callable[[int], bool]]:
        """Gives a function that reserves more bytes until the context ends, or returns False."""
        taken = 0

        def take(size: int) -> bool:
            nonlocal taken
            if self.left < size:
                return False
            self.left -= size
            taken += size
            return True

        try:
            yield take
        finally:
            self.left += taken


class Reply:
    """The response to one request: adds the headers of every response and tracks its progress."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        self.complete = False
        self._endless = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            names = {name for name, _ in SHIELDS}
            kept = [pair for pair in message.get("headers", ()) if pair[0].lower() not in names]
            message = {**message, "headers": [*kept, *SHIELDS]}
            self._endless = all(name != b"content-length" for name, _ in message["headers"])
        else:
            self.complete = not message.get("more_body", False)
        await self._send(message)

    async def answer(self, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
        length = (b"content-length", str(len(body)).encode())
        await self.send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
        await self.send({"type": "http.response.body", "body": body})

    async def refuse(self, refusal: Refusal, request_id: RequestId | None = None) -> None:
        kind = (b"content-type", b"application/json")
        await self.answer(refusal.status, refusal.body(request_id), kind, *refusal.all_headers)

    async def finish(self, refusal: Refusal = ENDING) -> None:
        """Complete an interrupted response, so that the client does not see a lost connection."""
        if not self.started:
            await self.refuse(refusal)
        elif self._endless and not self.complete:
            await self.send({"type": "http.response.body", "body": b""})


class Gateway:
    """An ASGI application that passes accepted requests to the server of their client."""

    def __init__(self, members: Members, rules: Rules, options: HttpOptions) -> None:
        self._members = members
        self._rules = rules
        self._options = options
        limits = RequestLimits(requests=options.max_sessions, of_one=options.limits.of_one)
        self._streams = ConcurrencyLimiter(limits)
        self._memory = MemoryBudget(LARGE_BODIES * options.max_body)
        self._disconnects = Disconnects()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        reply = Reply(send)
        head = head_of(scope)
        if self._disconnects.ended.is_set():
            await reply.refuse(ENDING)
        elif (refusal := check_request(head, self._rules)) is not None:
            await reply.refuse(refusal)
        elif (public := self._rules.routes[head.path].public) is not None:
            status, text = await public()
            await reply.answer(status, text, (b"content-type", b"text/plain"))
        else:
            await self._identify(head, scope, lambda: self._disconnects.receive(receive), reply)
            if self._disconnects.ended.is_set():
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
        if member.disconnects.ended.is_set() and not self._disconnects.ended.is_set():
            await reply.finish(REVOKED)

    async def _serve(
        self, head: RequestHead, scope: Scope, receive: Receive, reply: Reply, member: Member
    ) -> None:
        # The reservation lasts until the answer, because a call uses its arguments while it runs.
        with self._memory.reservation() as take:
            body = await read_body(head, receive, take, self._options)
            posted = message_in(head, body) if isinstance(body, bytes) else body
            if isinstance(posted, Refusal):
                await reply.refuse(posted)
            elif isinstance(body, bytes) and posted is not None and not member.disconnects.ended.is_set():
                # No credentials, and none of the names that the client used.
                kept = [(name, value) for name, value in scope["headers"] if name not in _SPENT]
                headers = [*kept, (b"host", INNER_HOST.encode())]
                inner = {**scope, "headers": headers, POSTED: posted}
                await self._pass(inner, replayed(body, receive), reply, member)

    async def _pass(self, scope: Scope, receive: Receive, reply: Reply, member: Member) -> None:
        posted: Posted = scope[POSTED]
        if (limited := self._limited(scope, posted, member)) is None:
            await member.app(scope, receive, reply.send)
            return
        limiter, client = limited
        if (refusal := limiter.acquire(client, posted.method or "")) is not None:
            await reply.refuse(refusal, posted.id)
            return
        try:
            await member.app(scope, receive, reply.send)
        finally:
            limiter.release(client)

    def _limited(self, scope: Scope, posted: Posted, member: Member) -> tuple[ConcurrencyLimiter, str] | None:
        """The limiter of a request, and its client; None if it is answered at once, as a cancellation."""
        client = client_of(scope, posted)
        if scope["method"] == "GET" or posted.method == "subscriptions/listen":
            return self._streams, client if member.grant is None else member.grant.name
        counts = posted.is_call and posted.method != UNCOUNTED
        return (member.limiter, client) if counts and self._rules.routes[scope["path"]].awaits else None


def client_of(scope: Scope, posted: Posted) -> str:
    """Identifies the client: its session, or else its address and the name that it sends."""
    session = next((value for name, value in scope["headers"] if name == _SESSION), None)
    if session is not None:
        return f"#{session.decode('latin-1')}"
    peer: tuple[str, int] | None = scope.get("client")
    return f"{peer[0] if peer else ''} {posted.client}"


def head_of(scope: Scope) -> RequestHead:
    server: tuple[str, int | None] | None = scope.get("server")
    local = authority(server[0], server[1]) if server is not None and server[1] is not None else ""
    return RequestHead(
        method=scope["method"],
        path=scope["path"],
        query=scope["query_string"],
        headers=tuple(scope["headers"]),
        local=local,
    )


def replayed(body: bytes, receive: Receive) -> Receive:
    """`receive` for the inner application: first the whole body, then the messages of the connection."""
    whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return whole.pop() if whole else await receive()

    return replay


async def read_body(
    head: RequestHead, receive: Receive, take: Callable[[int], bool], options: HttpOptions
) -> bytes | Refusal | None:
    """The whole body, for which `take` reserves memory; None if the client disconnected before its end."""
    limit = options.max_body
    declared = head.values(b"content-length")
    if declared and int(declared[0]) > limit:
        return too_large(limit)
    body = bytearray()
    with anyio.move_on_after(options.body_seconds):
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            chunk: bytes = message.get("body", b"")
            if not take(len(chunk)):
                return FULL
            body += chunk
            if len(body) > limit:
                return too_large(limit)
            if not message.get("more_body", False):
                return bytes(body)
    return TOO_SLOW


def message_in(head: RequestHead, body: bytes) -> Posted | Refusal:
    """The message in a body, parsed as the SDK does: the last of repeated keys counts."""
    if head.method != "POST":
        return Posted()
    try:
        message: object = from_json(body, allow_inf_nan=False)
    except ValueError:
        return NOT_JSON
    match message:
        case {"method": str() as method, "id": str() | int() as request_id} if not isinstance(
            request_id, bool
        ):
            return Posted(method=method, id=request_id, client=_client(message))
        case {"method": str(), "id": object()}:
            # The SDK treats such a request as a notification and never answers it.
            return INVALID_ID
        case {"method": str() as method}:
            return Posted(method=method)
        case dict():
            return Posted()
        case _:
            return NOT_ONE_MESSAGE


def _client(message: object) -> str:
    match message:
        case {"params": {"_meta": {"io.modelcontextprotocol/clientInfo": {"name": str() as name}}}}:
            return name[:_NAME]
        case _:
            return ""
