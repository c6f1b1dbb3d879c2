"""Opens connections only to addresses the guard permits, and reads bodies up to a size limit. The check
happens where the socket is opened, so no redirect, retry or second lookup can bypass it."""

import ssl
import zlib
from collections.abc import AsyncIterable, Iterable
from pathlib import Path

import certifi
import httpcore

from mcp_toolserver.errors import Denied, Unavailable
from mcp_toolserver.runtime.web.guard import Guard

_MOST_ADDRESSES = 4
"""Addresses of one host that are tried."""


def create_tls_context() -> ssl.SSLContext:
    """Create a TLS context with the system's certificates, or with certifi's if there are none."""
    places = ssl.get_default_verify_paths()
    own = any(place and Path(place).exists() for place in (places.cafile, places.capath))
    return ssl.create_default_context(cafile=None if own else certifi.where())


class GuardedNetwork(httpcore.AsyncNetworkBackend):
    """Opens sockets only to checked addresses, and none of this machine's Unix sockets."""

    def __init__(self, guard: Guard, inner: httpcore.AsyncNetworkBackend) -> None:
        self._guard = guard
        self._inner = inner

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to a checked address; the HTTP client still uses the name for certificates and the Host
        header."""
        failure: Exception = httpcore.ConnectError("no address")
        for address in (await self._guard.addresses(host, port))[:_MOST_ADDRESSES]:
            try:
                stream = await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
                continue
            await self._refuse_this_machine(stream, host, address)
            return stream
        raise failure

    async def _refuse_this_machine(
        self, stream: httpcore.AsyncNetworkStream, host: str, address: str
    ) -> None:
        """Refuse a connection to ourselves: a public host can reach itself under its public address."""
        there, here = stream.get_extra_info("server_addr"), stream.get_extra_info("client_addr")
        if there[0] == here[0] and not self._guard.is_named(host, address, there[1]):
            await stream.aclose()
            raise Denied(f"{host} is this machine, and fetching from there is refused. Do not retry.")


ENCODINGS = "gzip"
"""The only compression requested; others cannot be decompressed within limits here."""

_GZIP = 31
"""Makes zlib expect gzip and no other format."""


class BodyDecoder:
    """Collects and decompresses body bytes up to a limit."""

    def __init__(self, encoding: str, most: int) -> None:
        if encoding not in ("", "identity", "gzip", "x-gzip"):
            raise Unavailable(f"the response uses the encoding {encoding[:20]!r}, which was not requested")
        self._inflate = zlib.decompressobj(_GZIP) if "gzip" in encoding else None
        self._most = most
        self._raw = 0
        self.content = bytearray()
        self.is_truncated = False
        """Whether the body exceeds the limit."""

    def add(self, chunk: bytes) -> None:
        """Add the next raw bytes.

        Raises:
            Unavailable: the bytes do not match the declared encoding.
        """
        self._raw += len(chunk)
        try:
            self._unpack(chunk)
        except zlib.error:
            raise Unavailable("the response does not match its declared encoding") from None
        # Also limit input that decompresses to nothing.
        self.is_truncated = self.is_truncated or self._raw > self._most

    def _unpack(self, chunk: bytes) -> None:
        while chunk and not self.is_truncated:
            room = self._most + 1 - len(self.content)
            if self._inflate is None:
                piece, chunk = chunk[:room], b""
            else:
                piece = self._inflate.decompress(chunk, room)
                chunk = self._inflate.unconsumed_tail
                if rest := self._inflate.unused_data:
                    # A gzip member has ended, and another one follows.
                    self._inflate, chunk = zlib.decompressobj(_GZIP), rest
            self.content += piece
            if len(self.content) > self._most:
                del self.content[self._most :]
                self.is_truncated = True


async def read_body(chunks: AsyncIterable[bytes], encoding: str, most: int) -> tuple[bytes, bool]:
    """Return at most `most` decoded bytes of the body, and whether that is all of it.

    Raises:
        Unavailable: as for `BodyDecoder`.
    """
    body = BodyDecoder(encoding, most)
    async for chunk in chunks:
        body.add(chunk)
        if body.is_truncated:
            break
    return bytes(body.content), not body.is_truncated
