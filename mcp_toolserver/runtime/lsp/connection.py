"""Exchanges framed JSON-RPC messages with one language server over pipes. Messages have size limits, because
language servers are untrusted."""

import asyncio
import json
import re
from collections.abc import Callable

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint

from mcp_toolserver.errors import Unavailable
from mcp_toolserver.runtime.processes.interactive import InteractiveProcess
from mcp_toolserver.text.json_values import is_object

MOST_BYTES = 16 << 20
"""Bytes of one message."""

_MOST_HEADER = 4 << 10
_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"^content-length:[ \t]*([0-9]{1,12})[ \t]*$", re.IGNORECASE | re.MULTILINE)

_LARGE = 256 << 10
"""Messages from this size on are parsed in a thread, so that other calls go on."""

_MOST_UNSENT = 1_000
_MOST_UNSENT_BYTES = 64 << 20
"""Limits for unsent messages; a server that stops reading is ended."""

_CANCEL = "$/cancelRequest"


class ProtocolError(Exception):
    """The data violates the protocol; the text says how and follows "it"."""


class ConnectionClosed(Exception):
    """The connection is closed; the text says why and follows "it"."""


class ResponseError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"error {code}")
        self.code = code


def encode_message(message: dict[str, object]) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def decode_message(body: bytes) -> object:
    """Decode a message body. Raises: ProtocolError: it is not JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise ProtocolError("sent invalid JSON") from None


class FrameDecoder:
    """Splits a byte stream into message bodies."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the messages that `data` completes. Raises: ProtocolError."""
        self._buffer += data
        bodies: list[bytes] = []
        while (place := self._next()) is not None and place[1] <= len(self._buffer):
            bodies.append(bytes(self._buffer[place[0] : place[1]]))
            del self._buffer[: place[1]]
        return bodies

    def _next(self) -> tuple[int, int] | None:
        """Return where the next body is. Output of a launcher before the first header is skipped with it."""
        end = self._buffer.find(_END, 0, _MOST_HEADER)
        if end < 0 and len(self._buffer) < _MOST_HEADER:
            return None
        given = _LENGTH.search(bytes(self._buffer[: max(end, 0)]).replace(b"\r\n", b"\n"))
        if given is None:
            raise ProtocolError("does not speak the Language Server Protocol")
        if int(given[1]) > MOST_BYTES:
            raise ProtocolError(f"sent a message of more than {MOST_BYTES:,} bytes")
        start = end + len(_END)
        return start, start + int(given[1])


class Connection:
    """A JSON-RPC connection. `on_request` returns `result` or `error` for a request of the server,
    `on_notification` receives its notifications, `on_close` is called once at the end."""

    def __init__(
        self,
        process: InteractiveProcess,
        on_request: Callable[[str, object], dict[str, object]],
        on_notification: Callable[[str, object], None],
        on_close: Callable[[], None],
    ) -> None:
        self._process = process
        self._on_request = on_request
        self._on_notification = on_notification
        self._on_close = on_close
        self._waiting: dict[int, asyncio.Future[object]] = {}
        self._last = 0
        self._unsent = asyncio.Queue[bytes](_MOST_UNSENT)
        self._unsent_bytes = 0
        self.close_reason = ""
        """Why the connection is closed; empty while it is open."""
        loop = asyncio.get_running_loop()
        self._tasks = (loop.create_task(self._read_loop()), loop.create_task(self._write_loop()))

    async def request(self, method: str, params: object) -> object:
        """Send a request and wait for the response. If the caller is cancelled, cancel the request.

        Raises:
            ConnectionClosed: there will be no response.
            ResponseError: the server reports an error.
        """
        self._check_open()
        self._last += 1
        request_id = self._last
        waiting = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        self._send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        try:
            return await waiting
        except asyncio.CancelledError:
            if not self.close_reason:
                self._send({"jsonrpc": "2.0", "method": _CANCEL, "params": {"id": request_id}})
            raise
        finally:
            self._waiting.pop(request_id, None)

    def notify(self, method: str, params: object) -> None:
        """Send a notification. Raises: ConnectionClosed: the connection is closed."""
        self._check_open()
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def close(self, why: str) -> None:
        self._mark_closed(why)
        for task in self._tasks:
            task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.gather(*self._tasks, return_exceptions=True)
            # Last, because a task could otherwise read from a reused descriptor.
            await self._process.end()

    def _check_open(self) -> None:
        if self.close_reason:
            raise ConnectionClosed(self.close_reason)

    def _mark_closed(self, why: str) -> None:
        if self.close_reason:
            return
        self.close_reason = why
        self._on_close()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionClosed(self.close_reason))

    def _send(self, message: dict[str, object]) -> None:
        data = encode_message(message)
        if not self._unsent_bytes:
            # Write now instead of waiting for the event loop.
            data = data[self._process.stdin.try_write(data) :]
        if not data:
            return
        self._unsent_bytes += len(data)
        if self._unsent_bytes > _MOST_UNSENT_BYTES or self._unsent.full():
            self._mark_closed("does not read what it is sent")
            return
        self._unsent.put_nowait(data)

    async def _write_loop(self) -> None:
        try:
            while not self.close_reason:
                data = await self._unsent.get()
                await self._process.stdin.write(data)
                self._unsent_bytes -= len(data)
        except Unavailable:
            self._mark_closed("ended")

    async def _read_loop(self) -> None:
        decoder = FrameDecoder()
        why = "ended"
        try:
            while not self.close_reason and (data := await self._process.read()):
                for body in decoder.feed(data):
                    await self._dispatch(body)
                    # Yield, so that a busy server does not block other tasks.
                    await checkpoint()
        except ProtocolError as error:
            why = str(error)
        self._mark_closed(why)

    async def _dispatch(self, body: bytes) -> None:
        is_large = len(body) > _LARGE
        message = await to_thread.run_sync(decode_message, body) if is_large else decode_message(body)
        if not is_object(message):
            raise ProtocolError("sent a message that is no object")
        method = message.get("method")
        if not isinstance(method, str):
            self._resolve(message)
        elif "id" in message:
            answer = self._on_request(method, message.get("params"))
            self._send({"jsonrpc": "2.0", "id": message["id"], **answer})
        else:
            self._on_notification(method, message.get("params"))

    def _resolve(self, message: dict[str, object]) -> None:
        """Pass a response to the waiting request, if there is one."""
        request_id = message.get("id")
        waiting = self._waiting.get(request_id) if isinstance(request_id, int) else None
        if waiting is None or waiting.done():
            return
        error = message.get("error")
        if error is None:
            waiting.set_result(message.get("result"))
        else:
            code = error.get("code") if is_object(error) else None
            waiting.set_exception(ResponseError(code if isinstance(code, int) else 0))
