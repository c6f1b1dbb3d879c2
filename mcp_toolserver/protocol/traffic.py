"""The streams of one connection, counted: calls in progress, and how long nothing has happened."""

import math
from collections import Counter
from contextvars import Context
from dataclasses import replace
from types import TracebackType
from typing import Protocol, Self

import anyio
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import ErrorData, JSONRPCError, JSONRPCRequest, JSONRPCResponse, RequestId

from mcp_toolserver.protocol.refusal import FULL


class Traffic:
    """The calls of one connection. Each holds a place from its arrival until it is answered or dropped.

    Without a call and without a message for `idle_seconds`, `idle` is cancelled.
    """

    def __init__(self, places: anyio.Semaphore, idle: anyio.CancelScope, idle_seconds: float) -> None:
        self._places = places
        self._idle = idle
        self._idle_seconds = idle_seconds
        # A client may give two calls one id; each holds its own place.
        self._calls: Counter[RequestId] = Counter()
        self.beat()

    def beat(self) -> None:
        """Something happened."""
        busy = self._calls.total() > 0
        self._idle.deadline = math.inf if busy else anyio.current_time() + self._idle_seconds

    def begin(self, request_id: RequestId) -> bool:
        """Take a place for a call, if there is one."""
        try:
            self._places.acquire_nowait()
        except anyio.WouldBlock:
            return False
        self._calls[request_id] += 1
        self.beat()
        return True

    def settle(self, request_id: RequestId | None) -> None:
        """A call was answered or dropped."""
        if request_id is not None and self._calls[request_id] > 0:
            self._calls -= Counter((request_id,))
            self._places.release()
        self.beat()

    def close(self) -> None:
        """Give back every place: the connection is over."""
        for _ in range(self._calls.total()):
            self._places.release()
        self._calls.clear()


class Closable(Protocol):
    """A stream, of either direction."""

    async def aclose(self) -> None: ...


class Source(Closable, Protocol):
    """Where messages come from."""

    @property
    def last_context(self) -> Context | None: ...
    async def receive(self) -> SessionMessage | Exception: ...


class Sink(Closable, Protocol):
    """Where messages go."""

    async def send(self, item: SessionMessage, /) -> None: ...


class Stream:
    """What the two directions have in common: closing, by hand or by context."""

    def __init__(self, beneath: Closable) -> None:
        self._beneath = beneath

    async def aclose(self) -> None:
        """Close the stream beneath."""
        await self._beneath.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


class Incoming(Stream):
    """Messages from the client; a call without a place is answered here and goes no further."""

    def __init__(self, source: Source, sink: Sink, traffic: Traffic) -> None:
        super().__init__(source)
        self._source = source
        self._sink = sink
        self._traffic = traffic

    @property
    def last_context(self) -> Context | None:
        """The context variables of whoever sent the last message; the SDK runs its handler in them."""
        return self._source.last_context

    async def receive(self) -> SessionMessage | Exception:
        """The next message that may pass."""
        while True:
            item = await self._source.receive()
            self._traffic.beat()
            if isinstance(item, Exception) or not isinstance(item.message, JSONRPCRequest):
                return item
            if self._traffic.begin(item.message.id):
                return self._marked(item, item.message.id)
            error = ErrorData(code=FULL.code, message=FULL.text)
            await self._sink.send(
                SessionMessage(JSONRPCError(jsonrpc="2.0", id=item.message.id, error=error))
            )

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    def _marked(self, item: SessionMessage, request_id: RequestId) -> SessionMessage:
        """The message with a note to tell when its call ends without an answer, as a cancelled one does."""
        noted = item.metadata if isinstance(item.metadata, ServerMessageMetadata) else ServerMessageMetadata()

        async def dropped() -> None:
            self._traffic.settle(request_id)

        return replace(item, metadata=replace(noted, on_request_unanswered=dropped))


class Outgoing(Stream):
    """Messages to the client."""

    def __init__(self, sink: Sink, traffic: Traffic) -> None:
        super().__init__(sink)
        self._sink = sink
        self._traffic = traffic

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message; an answer gives its call's place back."""
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            self._traffic.settle(item.message.id)
        else:
            self._traffic.beat()
        await self._sink.send(item)
