"""Receives the redirect with which the user's browser ends a login: one request with the expected state."""

import asyncio
import hmac
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs

import anyio
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from mcp_toolserver.errors import Unavailable

HOST = "127.0.0.1"

_SECONDS = 5.0
_MOST_BYTES, _MOST_CONNECTIONS, _MOST_FIELDS = 16_384, 16, 20

_REQUEST = re.compile(rb"GET /callback\?([!-~]{1,8192}) HTTP/1\.1\r\n")
_HOST = re.compile(rb"^host:[ \t]*([!-~]*)[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)

_PAGE = """\
HTTP/1.1 {status}\r
Content-Type: text/html; charset=utf-8\r
Content-Security-Policy: default-src 'none'\r
Referrer-Policy: no-referrer\r
Cache-Control: no-store\r
Connection: close\r
\r
<!doctype html><title>mcp-toolserver</title><p>{text}</p>
"""
_TAKEN = _PAGE.format(
    status="200 OK", text="Done. You can close this page and return to your agent."
).encode()
_REFUSED = _PAGE.format(status="400 Bad Request", text="This is not the login that was started.").encode()


class Redirect:
    """What listens on `port` for the redirect. Anything else gets an error page, and changes nothing."""

    def __init__(self, port: int) -> None:
        self.uri = f"http://{HOST}:{port}/callback"
        self.state = ""
        """Set when it is known; until then nothing matches."""
        self._port, self._open = port, 0
        self._fields: Mapping[str, str] = {}
        self._arrived = anyio.Event()

    async def fields(self) -> Mapping[str, str]:
        """Wait for the redirect; its parameters."""
        await self._arrived.wait()
        return self._fields

    async def serve(self, stream: SocketStream) -> None:
        """Answer one connection."""
        async with stream:
            self._open += 1
            try:
                with suppress(anyio.EndOfStream, OSError, *_BROKEN), anyio.move_on_after(_SECONDS):
                    if self._open <= _MOST_CONNECTIONS:
                        head = await BufferedByteReceiveStream(stream).receive_until(b"\r\n\r\n", _MOST_BYTES)
                        await stream.send(_TAKEN if self._takes(head) else _REFUSED)
            finally:
                self._open -= 1
                # After the page was sent: what waits closes the listener.
                if self._fields:
                    self._arrived.set()

    def _takes(self, head: bytes) -> bool:
        """Whether this is the redirect. Any page in the browser can send requests here, but knows no state; a
        name of its own that leads here is another host."""
        found, hosts = _REQUEST.match(head), _HOST.findall(head)
        if found is None or hosts != [f"{HOST}:{self._port}".encode()]:
            return False
        try:
            given = parse_qs(found[1].decode(), max_num_fields=_MOST_FIELDS)
        except ValueError:
            return False
        fields = {name: values[0] for name, values in given.items() if len(values) == 1}
        is_ours = hmac.compare_digest(fields.get("state", "").encode(), self.state.encode())
        if not self.state or not is_ours or self._fields:
            return False
        self._fields = fields
        return True


_BROKEN = (
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.DelimiterNotFound,
    anyio.IncompleteRead,
)


@asynccontextmanager
async def listening(port: int) -> AsyncGenerator[Redirect]:
    """Listen on loopback, on a free port if `port` is 0. Raises: Unavailable: the port is in use."""
    try:
        listener = await anyio.create_tcp_listener(local_host=HOST, local_port=port)
    except OSError:
        raise Unavailable(f"port {port} of {HOST} is in use; free it for the login") from None
    redirect = Redirect(listener.extra(SocketAttribute.local_port))  # noqa: S610  not Django's
    serving = asyncio.create_task(listener.serve(redirect.serve))
    try:
        yield redirect
    finally:
        serving.cancel()
        await asyncio.wait((serving,))
        await listener.aclose()
