"""Receives the redirect with which the user's browser ends a login: one request with the expected state."""

import asyncio
import hmac
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs

import anyio

from mcp_toolserver.errors import Unavailable

HOST, _URI = "127.0.0.1", "http://{}/callback"

_SECONDS = 5.0
_MOST_BYTES, _MOST_CONNECTIONS = 16_384, 16

_REQUEST = re.compile(rb"GET /callback\?([!-~]{1,8192}) HTTP/1\.1\r\n")
_HOST = re.compile(rb"^host:[ \t]*([!-~]*)[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)

_PAGE = "HTTP/1.1 {}\r\nContent-Type: text/plain\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n{}\n"
_TAKEN = _PAGE.format("200 OK", "Done. You can close this page and return to your agent.")
_REFUSED = _PAGE.format("400 Bad Request", "This is not the login that was started.")


class Redirect:
    """Waits for the redirect. Any other request gets an error page, and changes nothing."""

    def __init__(self) -> None:
        self.uri = ""
        self.state = ""
        """Set when it is known, and cleared by the redirect; without it nothing matches."""
        self.fields: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
        """The parameters of the redirect."""
        self._open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        self._open += 1
        try:
            with suppress(OSError, EOFError, asyncio.LimitOverrunError), anyio.move_on_after(_SECONDS):
                if self._open <= _MOST_CONNECTIONS:
                    fields = self._taken(await reader.readuntil(b"\r\n\r\n"))
                    writer.write((_TAKEN if fields else _REFUSED).encode())
                    if fields:
                        self.fields.set_result(fields)
                    await writer.drain()
        finally:
            self._open -= 1
            writer.close()

    def _taken(self, head: bytes) -> Mapping[str, str] | None:
        """The parameters, if this is the redirect. Any page in the browser can send requests here, but knows
        no state; a name of its own that leads here is another host."""
        found = _REQUEST.match(head)
        if found is None or [_URI.format(host.decode()) for host in _HOST.findall(head)] != [self.uri]:
            return None
        fields = {name: values[0] for name, values in parse_qs(found[1].decode()).items() if len(values) == 1}
        if not self.state or not hmac.compare_digest(fields.get("state", "").encode(), self.state.encode()):
            return None
        self.state = ""
        return fields


@asynccontextmanager
async def listening(port: int) -> AsyncGenerator[Redirect]:
    """Listen on loopback, on a free port if `port` is 0. Raises: Unavailable: the port is in use."""
    redirect = Redirect()
    try:
        server = await asyncio.start_server(redirect.serve, HOST, port, limit=_MOST_BYTES)
    except OSError:
        raise Unavailable(f"port {port} of {HOST} is in use; free it for the login") from None
    redirect.uri = _URI.format(f"{HOST}:{server.sockets[0].getsockname()[1]}")
    try:
        yield redirect
    finally:
        redirect.state = ""
        server.close()
