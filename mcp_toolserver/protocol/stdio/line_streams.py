"""Newline-delimited JSON-RPC: reads and writes messages, and answers invalid lines with an error."""

import json
from abc import abstractmethod

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


class LineWriter(ObjectSendStream[SessionMessage]):
    """Writes one message a line."""

    async def send(self, item: SessionMessage) -> None:
        """Write a message; returns once all of it is written.

        Raises:
            anyio.ClosedResourceError: the client stopped reading.
        """
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        await self.write(line.encode() + b"\n")

    @abstractmethod
    async def write(self, line: bytes) -> None:
        """Write a line. Raises: see `send`."""

    @abstractmethod
    async def wait_for_reader_gone(self) -> None:
        """Return when the client closed its end."""


class LineReader(ObjectReceiveStream[SessionMessage]):
    """Reads one message a line. Answers an invalid line with an error; the SDK would drop it."""

    def __init__(self, writer: LineWriter, longest: int) -> None:
        self._writer = writer
        self._longest = longest
        self._at_end = False

    async def receive(self) -> SessionMessage:
        """Raises: anyio.EndOfStream: the input has ended."""
        # A terminal can deliver more input after its end of input.
        while not self._at_end:
            line = await self.line()
            if line is None:
                text = f"A message may have at most {self._longest} bytes"
                await self._refuse(_error(INVALID_REQUEST, text))
            elif not line:
                self._at_end = True
            elif line.strip():
                found = _parsed(line)
                if isinstance(found, SessionMessage):
                    return found
                await self._refuse(found)
        raise anyio.EndOfStream

    @abstractmethod
    async def line(self) -> bytes | None:
        """The next line; b"" at the end of input; None for a line that is too long."""

    async def _refuse(self, error: JSONRPCError) -> None:
        await self._writer.send(SessionMessage(error))


def _parsed(line: bytes) -> SessionMessage | JSONRPCError:
    """The message in a line, or the error to answer an invalid line with."""
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
        return _error(PARSE_ERROR, "Not a JSON-RPC message")
    match found:
        case {"id": bool()}:
            pass
        case {"id": int() as request_id} | {"id": str() as request_id} if _can_be_sent(request_id):
            text = "Not a JSON-RPC message: a field is wrong, or a text holds half of a surrogate pair"
            return _error(INVALID_REQUEST, text, request_id)
        case _:
            pass
    return _error(PARSE_ERROR, "Not a JSON-RPC message")


def _error(code: int, text: str, request_id: RequestId | None = None) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=text))


def _can_be_sent(request_id: RequestId) -> bool:
    return not isinstance(request_id, str) or request_id.isprintable()
