"""The streams of one connection, counted: requests in progress, and how long nothing has happened."""

import math
from collections import Counter
from contextvars import Context
from dataclasses import replace
from types import TracebackType
from typing import Protocol, Self

import anyio
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse, RequestId

from mcp_toolserver.protocol.quota import Quota
from mcp_toolserver.protocol.refusal import Refusal

_ANSWERS = (JSONRPCResponse, JSONRPCError)


class Traffic:
    """The requests of one client. Each counts from its arrival until it is answered or dropped.

    Without a request and without a message for `idle_seconds`, `idle` is cancelled.
    """

    def __init__(
        self, quota: Quota, client: str, idle: anyio.CancelScope | None = None, idle_seconds: float = math.inf
    ) -> None:
        self._quota = quota
        self._client = client
        self._idle = idle
        self._idle_seconds = idle_seconds
        # A client may give two requests one id; each counts.
        self._requests: Counter[RequestId] = Counter()
        self.beat()

    def beat(self) -> None:
        """Something happened."""
        if self._idle is None:
            return
        busy = self._requests.total() > 0
        self._idle.deadline = math.inf if busy else anyio.current_time() + self._idle_seconds

    def begin(self, request: JSONRPCRequest) -> Refusal | None:
        """Count a request in; or why that cannot be."""
        if (refusal := self._quota.enter(self._client, request.method)) is not None:
            return refusal
        self._requests[request.id] += 1
        self.beat()
        return None

    def settle(self, request_id: RequestId | None) -> None:
        """A request was answered or dropped."""
        if request_id is not None and (count := self._requests[request_id]) > 0:
            if count == 1:
                del self._requests[request_id]
            else:
                self._requests[request_id] = count - 1
            self._quota.leave(self._client)
        self.beat()

    def close(self) -> None:
        """Count out what is left: the connection is over."""
        for _ in range(self._requests.total()):
            self._quota.leave(self._client)
        self._requests.clear()


class Closable(Protocol):
    """A stream, of either direction."""

    async def aclose(self) -> None: ...


class Source(Closable, Protocol):
    """Where messages come from."""

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
    """Messages from the client; a request that is one too many is answered here and goes no further."""

    def __init__(self, source: Source, sink: Sink, traffic: Traffic) -> None:
        super().__init__(source)
        self._source = source
        self._sink = sink
        self._traffic = traffic

    @property
    def last_context(self) -> Context | None:
        """The context variables of whoever sent the last message; the SDK runs its handler in them."""
        return getattr(self._source, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """The next message that may pass."""
        while True:
            item = await self._source.receive()
            self._traffic.beat()
            if isinstance(item, Exception) or not isinstance(item.message, JSONRPCRequest):
                return item
            if (refusal := self._traffic.begin(item.message)) is None:
                return self._marked(item, item.message.id)
            await self._sink.send(
                SessionMessage(JSONRPCError(jsonrpc="2.0", id=item.message.id, error=refusal.error))
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

        async def dropped() -> None:
            self._traffic.settle(request_id)

        # A message off a pipe has no notes, and making one anew costs less than changing one.
        if isinstance(item.metadata, ServerMessageMetadata):
            noted = replace(item.metadata, on_request_unanswered=dropped)
        else:
            noted = ServerMessageMetadata(on_request_unanswered=dropped)
        return SessionMessage(item.message, noted)


class Outgoing(Stream):
    """Messages to the client."""

    def __init__(self, sink: Sink, traffic: Traffic) -> None:
        super().__init__(sink)
        self._sink = sink
        self._traffic = traffic

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message; an answer ends its request."""
        if isinstance(item.message, _ANSWERS):
            self._traffic.settle(item.message.id)
        else:
            self._traffic.beat()
        await self._sink.send(item)
