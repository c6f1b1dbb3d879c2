"""Newline-delimited JSON-RPC: reads and writes messages, and answers invalid lines with an error.

The streams keep the SDK's contract: the reader ends with the input, and the writer waits while the client
does not read.
"""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio
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
from mcp_toolserver.protocol.stdio import lines


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
        return _error(INVALID_REQUEST, f"A message may have at most {lines.LONGEST} bytes")
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


def on_lines(found: lines.Lines) -> tuple[LineReader, LineWriter]:
    """Read and write messages on lines."""
    writer = LineWriter(found.write, found.wait_for_reader_gone, found.close_output)
    return LineReader(writer, found.read, found.close_input), writer
