"""Wraps the streams of one connection to count its requests in progress and to detect that it is idle."""

import math
from collections.abc import Iterator
from contextvars import Context
from dataclasses import replace
from typing import Protocol

import anyio
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse, RequestId

from mcp_toolserver.protocol.rate_limit import ConcurrencyLimiter, is_counted
from mcp_toolserver.protocol.refusals import Refusal

_ANSWERS = (JSONRPCResponse, JSONRPCError)


class ConnectionStats:
    """The requests in progress of one connection, from arrival until answered or dropped.

    Cancels `idle` after `idle_seconds` without a message while no request is in progress.
    """

    def __init__(
        self,
        limiter: ConcurrencyLimiter,
        client: str,
        idle: anyio.CancelScope | None = None,
        idle_seconds: float = math.inf,
    ) -> None:
        self._limiter = limiter
        self._client = client
        self._idle = idle
        self._idle_seconds = idle_seconds
        # A client may give two requests one id; each counts.
        self._requests: dict[RequestId, list[JSONRPCRequest]] = {}
        self._settled = anyio.Event()
        self.touch()

    @property
    def in_progress(self) -> Iterator[JSONRPCRequest]:
        """The requests that are neither answered nor dropped."""
        return (request for requests in self._requests.values() for request in requests)

    async def wait_for_settled(self) -> None:
        """Return when the next request is answered or dropped."""
        await self._settled.wait()

    def touch(self) -> None:
        if self._idle is None:
            return
        self._idle.deadline = math.inf if self._requests else anyio.current_time() + self._idle_seconds

    def request_started(self, request: JSONRPCRequest) -> Refusal | None:
        """Count a request; returns a refusal if the client is over its limit."""
        if is_counted(request.method):
            refusal = self._limiter.acquire(self._client, request.method)
            if refusal is not None:
                return refusal
        self._requests.setdefault(request.id, []).append(request)
        self.touch()
        return None

    def request_finished(self, request_id: RequestId | None) -> None:
        """Stop counting a request that was answered or dropped."""
        if request_id is not None and (requests := self._requests.get(request_id)):
            self._leave(requests.pop(0))
            if not requests:
                del self._requests[request_id]
            self._settled.set()
            self._settled = anyio.Event()
        self.touch()

    def close(self) -> None:
        """Stop counting all requests, when the connection is closed."""
        for request in self.in_progress:
            self._leave(request)
        self._requests.clear()

    def _leave(self, request: JSONRPCRequest) -> None:
        if is_counted(request.method):
            self._limiter.release(self._client)


class Source(Protocol):
    async def receive(self) -> SessionMessage | Exception: ...

    async def aclose(self) -> None: ...


class Sink(Protocol):
    async def send(self, item: SessionMessage, /) -> None: ...

    async def aclose(self) -> None: ...


class Incoming(ObjectReceiveStream[SessionMessage | Exception]):
    """Messages from the client. Answers a request over the limit with an error instead of passing it on."""

    def __init__(self, source: Source, sink: Sink, stats: ConnectionStats) -> None:
        self._source = source
        self._sink = sink
        self._stats = stats

    async def next_cancellation(self) -> SessionMessage | None:
        """After the end of input: a message to handle as if the client had sent it, or None at the end."""
        return None

    async def dropped(self, request_id: RequestId) -> None:
        """A request ended without an answer."""

    @property
    def last_context(self) -> Context | None:
        """The context variables of the sender of the last message; the SDK runs its handler in them."""
        return getattr(self._source, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        while True:
            item = await self._next()
            self._stats.touch()
            if isinstance(item, Exception) or not isinstance(item.message, JSONRPCRequest):
                return item
            if (refusal := self._stats.request_started(item.message)) is None:
                return self._marked(item, item.message.id)
            await self._sink.send(
                SessionMessage(JSONRPCError(jsonrpc="2.0", id=item.message.id, error=refusal.error))
            )

    async def _next(self) -> SessionMessage | Exception:
        try:
            return await self._source.receive()
        except anyio.EndOfStream:
            if (message := await self.next_cancellation()) is None:
                raise
            return message

    async def aclose(self) -> None:
        await self._source.aclose()

    def _marked(self, item: SessionMessage, request_id: RequestId) -> SessionMessage:
        """The message with a callback for a request that ends without an answer, as a cancelled one does."""

        async def dropped() -> None:
            try:
                await self.dropped(request_id)
            finally:
                self._stats.request_finished(request_id)

        # Messages from a pipe have no metadata, and creating it is faster than `replace`.
        if isinstance(item.metadata, ServerMessageMetadata):
            noted = replace(item.metadata, on_request_unanswered=dropped)
        else:
            noted = ServerMessageMetadata(on_request_unanswered=dropped)
        return SessionMessage(item.message, noted)


class Outgoing(ObjectSendStream[SessionMessage]):
    def __init__(self, sink: Sink, stats: ConnectionStats) -> None:
        self._sink = sink
        self._stats = stats

    async def send(self, item: SessionMessage) -> None:
        """Send a message. After an answer is sent, its request no longer counts."""
        if not isinstance(item.message, _ANSWERS):
            self._stats.touch()
            await self._sink.send(item)
            return
        try:
            await self._sink.send(item)
        finally:
            self._stats.request_finished(item.message.id)

    async def aclose(self) -> None:
        await self._sink.aclose()
