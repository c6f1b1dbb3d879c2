"""The transport to an upstream server with a URL."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from mcp_toolserver.gateway.upstream_file import Upstream
from mcp_toolserver.protocol.upstreams.connection import MOST_BYTES, Connection

_CONNECT_SECONDS = 10.0


@asynccontextmanager
async def remote_transport(upstream: Upstream, connection: Connection) -> AsyncGenerator[TransportStreams]:
    """The streams to the server. The SDK follows no redirect to another origin."""

    def client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers={**upstream.headers, **(headers or {})},
            timeout=httpx2.Timeout(_CONNECT_SECONDS, read=upstream.timeout),
            auth=connection.auth,
            transport=_Bounded(httpx2.AsyncHTTPTransport()),
        )

    if upstream.kind == "sse":
        async with sse_client(upstream.url, httpx_client_factory=client) as streams:
            yield streams
        return
    async with (
        client() as http,
        streamable_http_client(upstream.url, http_client=http, max_sse_event_size=MOST_BYTES) as streams,
    ):
        yield streams


class _Bounded(httpx2.AsyncBaseTransport):
    """Bounds the bytes of each answer that is no stream of events, whose events the SDK bounds."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        is_events = response.headers.get("content-type", "").startswith("text/event-stream")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        if not is_events:
            response.stream = _BoundedStream(response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        size = 0
        async for part in self._inner:
            size += len(part)
            if size > MOST_BYTES:
                raise httpx2.ReadError(f"an answer of more than {MOST_BYTES:,} bytes")
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()
