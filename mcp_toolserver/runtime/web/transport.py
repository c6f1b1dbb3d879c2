"""Opens connections only to addresses the guard permits. The check happens where the socket is opened, so no
redirect, retry or second lookup can bypass it."""

import ssl
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import certifi
import httpcore
import httpx

from mcp_toolserver.errors import Denied
from mcp_toolserver.runtime.web.guard import Guard

_MOST_ADDRESSES = 4
"""Addresses of one host that are tried."""

_SocketOptions = Iterable[
    tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
]


def create_tls_context() -> ssl.SSLContext:
    """Create a TLS context with the system's certificates, or with certifi's if there are none."""
    places = ssl.get_default_verify_paths()
    own = any(place and Path(place).exists() for place in (places.cafile, places.capath))
    return ssl.create_default_context(cafile=None if own else certifi.where())


class GuardedNetwork(httpcore.AsyncNetworkBackend):
    """Opens sockets only to checked addresses."""

    def __init__(self, guard: Guard, inner: httpcore.AsyncNetworkBackend) -> None:
        self._guard = guard
        self._inner = inner

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: _SocketOptions | None = None,
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

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: _SocketOptions | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Refuse: a Unix socket is not the web."""
        raise Denied("a socket of this machine is not of the web")

    async def sleep(self, seconds: float) -> None:
        """Sleep between retries, which this client does not make."""
        await self._inner.sleep(seconds)

    async def _refuse_this_machine(
        self, stream: httpcore.AsyncNetworkStream, host: str, address: str
    ) -> None:
        """Refuse a connection to ourselves: a public host can reach itself under its public address."""
        there, here = stream.get_extra_info("server_addr"), stream.get_extra_info("client_addr")
        if there[0] == here[0] and not self._guard.is_named(host, address, there[1]):
            await stream.aclose()
            raise Denied(f"{host} is this machine, and fetching from there is refused. Do not retry.")


class GuardedTransport(httpx.AsyncBaseTransport):
    """An HTTP transport without proxies and cookies, over a guarded network."""

    def __init__(self, network: GuardedNetwork, trusted: ssl.SSLContext | None) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=trusted, http1=True, http2=False, network_backend=network
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; errors are httpcore's."""
        assert isinstance(request.stream, httpx.AsyncByteStream)
        answer = await self._pool.handle_async_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(
                    scheme=request.url.raw_scheme,
                    host=request.url.raw_host,
                    port=request.url.port,
                    target=request.url.raw_path,
                ),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx.Response(answer.status, headers=answer.headers, stream=_Body(answer))

    async def aclose(self) -> None:
        """Close every connection."""
        await self._pool.aclose()


class _Body(httpx.AsyncByteStream):
    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._answer.aiter_stream()

    async def aclose(self) -> None:
        await self._answer.aclose()
