"""Limits the requests that clients have in progress and the tool calls that they make in a minute.

A client is identified by its session, or without one by its address and the name that it sends. This keeps
clients from blocking each other. A client can send many names; the limit on all requests together still
applies to it.

Wrapped streams count the requests of a connection and detect that it is idle.
"""

import math
import time
from collections import Counter
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field, replace

import anyio
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse, RequestId

from mcp_toolserver.protocol.refusals import FULL, Refusal, too_fast, too_many

_ANSWERS = (JSONRPCResponse, JSONRPCError)

_REMEMBERED = 1024
"""Clients that the rate limiter remembers; beyond that it forgets the least recent one."""


UNCOUNTED = "ping"
"""The method of requests that do not count, because they show that a busy server is alive."""


@dataclass(frozen=True, kw_only=True)
class RequestLimits:
    requests: int = 256
    """In progress at the same time, of all clients."""
    of_one: int = 128
    """In progress at the same time, of one client."""
    per_minute: int = 0
    """Tool calls per minute of one client; 0 means no limit."""


class ConcurrencyLimiter:
    """Limits the requests in progress, in all and by client."""

    def __init__(self, limits: RequestLimits) -> None:
        self.limits = limits
        self._rate_limiter = RateLimiter(limits.per_minute) if limits.per_minute else None
        self._count = 0
        self._by_client: Counter[str] = Counter()

    def acquire(self, client: str, method: str) -> Refusal | None:
        """Count a request; returns a refusal over a limit. Without one the caller must call `release`."""
        if self._count >= self.limits.requests:
            return FULL
        if self._by_client[client] >= self.limits.of_one:
            return too_many(self.limits.of_one)
        if self._rate_limiter and method == "tools/call" and (seconds := self._rate_limiter.take(client)):
            return too_fast(self.limits.per_minute, seconds)
        self._count += 1
        self._by_client[client] += 1
        return None

    def release(self, client: str) -> None:
        self._count -= 1
        self._by_client[client] -= 1
        if not self._by_client[client]:
            del self._by_client[client]


class LimiterOfName(ConcurrencyLimiter):
    """Limits the requests of all clients with the token of one name, within the limits of the server."""

    def __init__(self, name: str, limits: RequestLimits, shared: ConcurrencyLimiter) -> None:
        # All requests are of one client here, so that its limit is the one that answers.
        super().__init__(replace(limits, requests=limits.of_one + 1))
        self._name = name
        self._shared = shared

    def acquire(self, client: str, method: str) -> Refusal | None:
        if (refusal := super().acquire(self._name, method)) is not None:
            return refusal
        if (refusal := self._shared.acquire(f"{self._name} {client}", method)) is not None:
            super().release(self._name)
        return refusal

    def release(self, client: str) -> None:
        self._shared.release(f"{self._name} {client}")
        super().release(self._name)


class RateLimiter:
    """Limits calls per minute by client, with GCRA: a burst of a minute's calls, then evenly."""

    def __init__(self, per_minute: int, now: Callable[[], float] = time.monotonic) -> None:
        self._step = 60 / per_minute
        self._now = now
        self._rested: dict[str, float] = {}
        """By client the time at which its bucket is empty; the most recent client is last."""

    def take(self, client: str) -> int:
        """Count a call and return 0, or return the whole seconds until the client may call."""
        now = self._now()
        rested = max(now, self._rested.get(client, now)) + self._step
        # Half a step, because sums of fractions are not exact.
        if (early := rested - now - 60) > self._step / 2:
            return math.ceil(early)
        self._rested.pop(client, None)
        self._rested[client] = rested
        if len(self._rested) > _REMEMBERED:
            del self._rested[next(iter(self._rested))]
        return 0


@dataclass(eq=False)
class ConnectionStats:
    """The requests in progress of one connection, from arrival until answered or dropped.

    Cancels `idle` after `idle_seconds` without a message while no request is in progress.
    """

    limiter: ConcurrencyLimiter
    client: str
    idle: anyio.CancelScope | None = None
    idle_seconds: float = math.inf
    in_progress: list[JSONRPCRequest] = field(default_factory=list[JSONRPCRequest])
    """The requests that are neither answered nor dropped; a client may give two of them one id."""
    settled: anyio.Event = field(default_factory=anyio.Event)
    """Set, and replaced, when a request is answered or dropped."""

    def __post_init__(self) -> None:
        self.touch()

    def touch(self) -> None:
        if self.idle is not None:
            self.idle.deadline = math.inf if self.in_progress else anyio.current_time() + self.idle_seconds

    def request_started(self, request: JSONRPCRequest) -> Refusal | None:
        """Count a request; returns a refusal if the client is over its limit."""
        if request.method != UNCOUNTED and (refusal := self.limiter.acquire(self.client, request.method)):
            return refusal
        self.in_progress.append(request)
        return None

    def request_finished(self, request_id: RequestId | None) -> None:
        """Stop counting a request that was answered or dropped."""
        for request in self.in_progress:
            if request.id == request_id:
                self.in_progress.remove(request)
                self._leave(request)
                self.settled.set()
                self.settled = anyio.Event()
                break
        self.touch()

    def close(self) -> None:
        """Stop counting all requests, when the connection is closed."""
        for request in self.in_progress:
            self._leave(request)
        self.in_progress.clear()

    def _leave(self, request: JSONRPCRequest) -> None:
        if request.method != UNCOUNTED:
            self.limiter.release(self.client)


@dataclass(eq=False, frozen=True)
class Incoming(ObjectReceiveStream[SessionMessage | Exception]):
    """Messages from the client. Answers a request over the limit with an error instead of passing it on."""

    source: ReadStream[SessionMessage | Exception]
    sink: WriteStream[SessionMessage]
    stats: ConnectionStats

    async def next_cancellation(self) -> SessionMessage | None:
        """After the end of input: a message to handle as if the client had sent it, or None at the end."""
        return None

    async def dropped(self, request_id: RequestId) -> None:
        """A request ended without an answer."""

    @property
    def last_context(self) -> Context | None:
        """The context variables of the sender of the last message; the SDK runs its handler in them."""
        return getattr(self.source, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        while True:
            try:
                item = await self.source.receive()
            except anyio.EndOfStream:
                item = await self.next_cancellation()
                if item is None:
                    raise
            if isinstance(item, Exception) or not isinstance(item.message, JSONRPCRequest):
                self.stats.touch()
                return item
            refusal = self.stats.request_started(item.message)
            self.stats.touch()
            if refusal is None:
                return self._marked(item, item.message.id)
            await self.sink.send(
                SessionMessage(JSONRPCError(jsonrpc="2.0", id=item.message.id, error=refusal.error))
            )

    async def aclose(self) -> None:
        await self.source.aclose()

    def _marked(self, item: SessionMessage, request_id: RequestId) -> SessionMessage:
        """The message with a callback for a request that ends without an answer, as a cancelled one does."""

        async def dropped() -> None:
            try:
                await self.dropped(request_id)
            finally:
                self.stats.request_finished(request_id)

        # Messages from a pipe have no metadata, and creating it is faster than `replace`.
        if isinstance(item.metadata, ServerMessageMetadata):
            noted = replace(item.metadata, on_request_unanswered=dropped)
        else:
            noted = ServerMessageMetadata(on_request_unanswered=dropped)
        return SessionMessage(item.message, noted)


@dataclass(eq=False)
class Outgoing(ObjectSendStream[SessionMessage]):
    sink: WriteStream[SessionMessage]
    stats: ConnectionStats

    async def send(self, item: SessionMessage) -> None:
        """Send a message. After an answer is sent, its request no longer counts."""
        try:
            await self.sink.send(item)
        finally:
            if isinstance(item.message, _ANSWERS):
                self.stats.request_finished(item.message.id)
            else:
                self.stats.touch()

    async def aclose(self) -> None:
        await self.sink.aclose()
