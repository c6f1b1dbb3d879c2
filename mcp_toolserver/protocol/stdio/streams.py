"""Newline-delimited JSON-RPC: reads and writes messages, and answers invalid lines with an error.

Pipes are read and written in the event loop. The SDK's stdio transport passes every line through worker
threads, which takes half the time of a small call. All streams keep the SDK's contract: the reader ends with
the input, and the writer waits while the client does not read.
"""

import asyncio
import json
import os
import select
import stat
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

import anyio
from anyio import to_thread
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    RequestId,
    jsonrpc_message_adapter,
)

from mcp_toolserver.protocol.refusals import INVALID_ID

LONGEST = 64 * 1024 * 1024
"""Maximum bytes of one message. A file of 10 MiB can take six times that as JSON."""

_WATCH_SECONDS = 10
"""Timeout of the thread that waits for the reader to close; longer than any caller waits for the thread."""


@dataclass(eq=False)
class LineWriter(ObjectSendStream[SessionMessage]):
    """Writes one message a line."""

    write: Callable[[bytes], Awaitable[None]]
    """Writes a line; returns once all of it is written. Raises: see `send`."""
    wait_for_reader_gone: Callable[[], Awaitable[object]]
    """Returns when the client closed its end."""
    close: Callable[[], None] = lambda: None

    async def send(self, item: SessionMessage) -> None:
        """Write all of a message. Raises: anyio.ClosedResourceError: the client stopped reading."""
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        await self.write(line.encode() + b"\n")

    async def aclose(self) -> None:
        self.close()


@dataclass(eq=False)
class LineReader(ObjectReceiveStream[SessionMessage]):
    """Reads one message a line. Answers an invalid line with an error; the SDK would drop it."""

    writer: LineWriter
    line: Callable[[], Awaitable[bytes | None]]
    """Returns the next line; b"" at the end of input; None for a line that is too long."""
    close: Callable[[], None] = lambda: None
    _at_end: bool = False

    async def receive(self) -> SessionMessage:
        """Raises: anyio.EndOfStream: the input has ended."""
        # A terminal can deliver more input after its end of input.
        while not self._at_end:
            line = await self.line()
            if line == b"":
                self._at_end = True
            elif line is None or line.strip():
                found = _parsed(line)
                if isinstance(found, SessionMessage):
                    return found
                await self.writer.send(SessionMessage(found))
        raise anyio.EndOfStream

    async def aclose(self) -> None:
        self.close()


def _parsed(line: bytes | None) -> SessionMessage | JSONRPCError:
    """The message in a line, or the error to answer an invalid line with; None is a line that is too long."""
    if line is None:
        return _error(INVALID_REQUEST, f"A message may have at most {LONGEST} bytes")
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return _wrong(line)
    if isinstance(message, JSONRPCNotification) and "id" in json.loads(line):
        # The SDK takes a request whose id has the wrong type for a notification, and never answers it.
        return _error(INVALID_ID.code, INVALID_ID.text)
    return SessionMessage(message)


def _wrong(line: bytes) -> JSONRPCError:
    """The error for an invalid line. It carries the id if there is one, because a client waits for it."""
    if line.lstrip().startswith(b"["):
        return _error(INVALID_REQUEST, "Batches are not part of this protocol; send one message a line")
    try:
        found: object = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    match found:
        case {"id": int() | str() as request_id} if (
            not isinstance(request_id, bool) and str(request_id).isprintable()
        ):
            text = "Not a JSON-RPC message: a field is wrong, or a text holds half of a surrogate pair"
            return _error(INVALID_REQUEST, text, request_id)
        case _:
            return _error(PARSE_ERROR, "Not a JSON-RPC message")


def _error(code: int, text: str, request_id: RequestId | None = None) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=text))


def are_pipes(*descriptors: int) -> bool:
    """Whether all are pipes or sockets, which an event loop can wait for, and none is standard error.

    A file that is also standard error must stay blocking.
    """
    states = [os.fstat(descriptor) for descriptor in descriptors]
    errors = os.fstat(2)
    return all(
        (stat.S_ISFIFO(state.st_mode) or stat.S_ISSOCK(state.st_mode)) and not os.path.samestat(state, errors)
        for state in states
    )


class _Sending(asyncio.streams.FlowControlMixin):
    """The pipe to the client. Calls `lost` when the client closes it."""

    def __init__(self, lost: Callable[[], None]) -> None:
        super().__init__()
        self._lost = lost

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._lost()


async def open_pipes(source: int, target: int) -> tuple[LineReader, LineWriter]:
    """Streams on two pipes or sockets, which they own, in the event loop.

    When the client closes the pipe that it reads from, the input ends too.
    """
    # asyncio allocates 256 KiB for every read. glibc maps and unmaps that each time, which takes a tenth of a
    # small call, until one larger block was freed: that raises its threshold for mmap.
    bytes(1 << 20)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LONGEST)
    receiving, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(source, "rb", buffering=0)
    )
    reader_gone = anyio.Event()

    def lost() -> None:
        reader_gone.set()
        receiving.close()

    sending, protocol = await loop.connect_write_pipe(
        lambda: _Sending(lost), os.fdopen(target, "wb", buffering=0)
    )
    # `drain` returns when all of a message is in the pipe; a buffered rest would be lost at exit.
    sending.set_write_buffer_limits(high=0)
    stream = asyncio.StreamWriter(sending, protocol, None, loop)

    async def write(line: bytes) -> None:
        stream.write(line)
        try:
            await stream.drain()
        except ConnectionError:
            raise anyio.ClosedResourceError from None

    writer = LineWriter(write, reader_gone.wait, sending.close)
    return LineReader(writer, partial(_line_of_pipe, reader), receiving.close), writer


async def _line_of_pipe(reader: asyncio.StreamReader) -> bytes | None:
    too_long = False
    while True:
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as end:
            return None if too_long else end.partial
        except asyncio.LimitOverrunError as overrun:
            too_long = True
            await reader.readexactly(overrun.consumed)
        else:
            return None if too_long else line


def open_files(source: int, target: int) -> tuple[LineReader, LineWriter]:
    """Streams on two descriptors, with worker threads, because an event loop cannot wait for a terminal or a
    file.

    They never close the descriptors, because a thread may be reading; the process exit does.
    """
    requests, answers = (os.fdopen(source, "rb", closefd=False), os.fdopen(target, "wb", closefd=False))
    turn = anyio.Lock()

    def write_now(line: bytes) -> None:
        answers.write(line)
        answers.flush()

    async def write(line: bytes) -> None:
        async with turn:
            try:
                await to_thread.run_sync(write_now, line)
            except OSError:
                raise anyio.ClosedResourceError from None

    async def line() -> bytes | None:
        try:
            return await to_thread.run_sync(_line_of_file, requests, abandon_on_cancel=True)
        except OSError:
            # The terminal is gone.
            return b""

    writer = LineWriter(write, lambda: to_thread.run_sync(_wait_for_hang_up, target, abandon_on_cancel=True))
    return LineReader(writer, line), writer


def _line_of_file(file: BinaryIO) -> bytes | None:
    line = file.readline(LONGEST)
    if len(line) < LONGEST or line.endswith(b"\n"):
        return line
    while rest := file.readline(LONGEST):
        if rest.endswith(b"\n"):
            break
    return None


def _wait_for_hang_up(descriptor: int) -> None:
    """Wait until a pipe has no reader any more, or a terminal is gone. A file stays readable."""
    poll = select.poll()
    # With an empty event mask, poll reports only hang-ups and errors.
    poll.register(descriptor, 0)
    poll.poll(_WATCH_SECONDS * 1000)
