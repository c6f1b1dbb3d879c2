"""JSON-RPC over pipes, in the event loop: the SDK's stdio moves every line through worker threads, which
costs half of a small call.

Both streams keep the SDK's contract: the reader ends with the input, and the writer waits while the client
does not read.
"""

import asyncio
import json
import os
import stat
from collections.abc import Callable
from types import TracebackType
from typing import Literal, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    PROTOCOL_VERSION_META_KEY,
    ErrorData,
    JSONRPCError,
    JSONRPCRequest,
    RequestId,
    jsonrpc_message_adapter,
)

LONGEST = 64 * 1024 * 1024
"""Bytes of one message; a longer one is refused. A file of 10 MiB can take six times that as JSON."""


Opening = Literal["handshake", "envelope", "unknown"]


class _Stream:
    def __init__(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    async def aclose(self) -> None:
        """Close this end; what has been written still goes out."""
        self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        await self.aclose()


class PipeWriter(_Stream):
    """Writes one message a line."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        super().__init__(writer.transport)
        self._writer = writer

    async def send(self, item: SessionMessage, /) -> None:
        """Raises: anyio.ClosedResourceError: the client does not listen any more."""
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        self._writer.write(line.encode() + b"\n")
        try:
            await self._writer.drain()
        except ConnectionError:
            raise anyio.ClosedResourceError from None


class PipeReader(_Stream):
    """Reads one message a line. What is none is answered here, where the SDK would drop it in silence."""

    def __init__(
        self,
        transport: asyncio.BaseTransport,
        reader: asyncio.StreamReader,
        writer: PipeWriter,
        ended: Callable[[], None],
    ) -> None:
        super().__init__(transport)
        self._reader = reader
        self._writer = writer
        self._ended = ended
        self._seen: SessionMessage | None = None
        self._speaks_handshake = False

    async def opening(self) -> Opening:
        """What the first message says of the client's era; it stays to be read.

        After a handshake, a request of the newer era is refused: a connection is of one era.
        """
        try:
            self._seen = await self.receive()
        except anyio.EndOfStream:
            return "unknown"
        first = self._seen.message
        if not isinstance(first, JSONRPCRequest):
            return "unknown"
        self._speaks_handshake = first.method == "initialize"
        return "handshake" if self._speaks_handshake else "envelope" if _is_modern(first) else "unknown"

    async def receive(self) -> SessionMessage:
        """Raises: anyio.EndOfStream: the client is gone."""
        if self._seen is not None:
            seen, self._seen = self._seen, None
            return seen
        while True:
            message = await self._message()
            request = message.message
            if not (self._speaks_handshake and isinstance(request, JSONRPCRequest) and _is_modern(request)):
                return message
            text = "This connection opened with a handshake; its requests carry no protocol version"
            await self._refuse(INVALID_REQUEST, text, request.id)

    async def _message(self) -> SessionMessage:
        while True:
            line = await self._line()
            if line is None:
                await self._refuse(INVALID_REQUEST, f"A message may have at most {LONGEST} bytes")
            elif not line:
                self._ended()
                raise anyio.EndOfStream
            elif line.strip():
                try:
                    return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
                except ValueError:
                    await self._refuse(*_wrong(line))

    async def _line(self) -> bytes | None:
        """The next line, b"" at the end, None for one that is too long."""
        too_long = False
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError as end:
                return None if too_long else end.partial
            except asyncio.LimitOverrunError as overrun:
                too_long = True
                await self._reader.readexactly(overrun.consumed)
            else:
                return None if too_long else line

    async def _refuse(self, code: int, text: str, request_id: RequestId | None = None) -> None:
        error = JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=text))
        await self._writer.send(SessionMessage(error))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


def _is_modern(request: JSONRPCRequest) -> bool:
    meta = (request.params or {}).get("_meta")
    return isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta


def _wrong(line: bytes) -> tuple[int, str, RequestId | None]:
    """The answer to a line that is no message, with its id where one can be told: a client waits for that."""
    if line.lstrip().startswith(b"["):
        return INVALID_REQUEST, "Batches are not part of this protocol; send one message a line", None
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError):
        return PARSE_ERROR, "Not a JSON-RPC message", None
    match found:
        case {"id": bool()}:
            pass
        case {"id": int() as request_id} | {"id": str() as request_id} if _can_be_sent(request_id):
            text = "Not a JSON-RPC message: a field is wrong, or a text holds half of a surrogate pair"
            return INVALID_REQUEST, text, request_id
        case _:
            pass
    return PARSE_ERROR, "Not a JSON-RPC message", None


def _can_be_sent(request_id: RequestId) -> bool:
    return not isinstance(request_id, str) or request_id.isprintable()


def are_pipes(*descriptors: int) -> bool:
    """Whether all are pipes or sockets, which an event loop can wait for, and none is standard error.

    A terminal or a file is no such thing, and what shares its state with standard error must keep blocking.
    """
    states = [os.fstat(descriptor) for descriptor in descriptors]
    errors = os.fstat(2)
    return all(
        (stat.S_ISFIFO(state.st_mode) or stat.S_ISSOCK(state.st_mode)) and not os.path.samestat(state, errors)
        for state in states
    )


_LARGE_BLOCK = 1 << 20


class _Sending(asyncio.streams.FlowControlMixin):
    """What the client is to read. `lost` is called when it does not read it any more."""

    def __init__(self, lost: Callable[[], None]) -> None:
        super().__init__()
        self._lost = lost

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._lost()


def _nothing() -> None:
    return


async def over(
    source: int, target: int, ended: Callable[[], None] = _nothing
) -> tuple[PipeReader, PipeWriter]:
    """Streams over two descriptors, which they close when they are closed.

    `ended` is called at the end of the input. A client that does not listen any more has nothing to say
    either: when it closes the one, the other is at its end.
    """
    # For every read asyncio asks for 256 KiB and gives most of it back. GNU's C library fetches that from the
    # kernel each time, a tenth of a small call, until it has seen a block as large as this come back once.
    bytes(_LARGE_BLOCK)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LONGEST)
    receiving, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(source, "rb", buffering=0)
    )
    sending, protocol = await loop.connect_write_pipe(
        lambda: _Sending(receiving.close), os.fdopen(target, "wb", buffering=0)
    )
    writer = PipeWriter(asyncio.StreamWriter(sending, protocol, None, loop))
    return PipeReader(receiving, reader, writer, ended), writer
