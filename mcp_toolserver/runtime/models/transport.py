"""An HTTP transport to one endpoint only, without proxies or compression, that limits responses."""

import ssl
from collections.abc import AsyncIterator

import httpx2

from mcp_toolserver.runtime.models.options import ModelOptions

MAX_BYTES = 32 << 20
"""Maximum bytes of one response. A streamed token takes about 300 bytes."""

CONNECT_SECONDS = 10.0

_SENT = frozenset(
    (
        *("host", "connection", "accept", "content-type", "content-length", "transfer-encoding"),
        *("user-agent", "anthropic-version", "anthropic-beta"),
    )
)
"""Headers of the client libraries that are sent. They add others from environment variables, even keys."""


class OversizeResponse(httpx2.TransportError):
    """The response is longer than `MAX_BYTES`."""


class ForeignResponse(httpx2.TransportError):
    """The response has a form that was not asked for."""


class EndpointTransport(httpx2.AsyncBaseTransport):
    """Sends requests to the endpoint of `options` and nowhere else."""

    def __init__(self, options: ModelOptions, trusted: ssl.SSLContext) -> None:
        self._endpoint = options.endpoint
        # The limit counts what is received; compressed, a small response could be huge.
        self._headers = {"accept-encoding": "identity", **_key_header(options)}
        # Environment variables would name proxies and certificates.
        self._inner = httpx2.AsyncHTTPTransport(verify=trusted, trust_env=False, retries=0)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request.

        Raises:
            ForeignResponse: it leads elsewhere, or the response is compressed.
        """
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        if (request.url.host, port) != (self._endpoint.host, self._endpoint.port):
            raise ForeignResponse("another host")
        for name in set(request.headers) - _SENT:
            del request.headers[name]
        request.headers.update(self._headers)
        response = await self._inner.handle_async_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise ForeignResponse("compressed")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Limited(response.stream)
        return response

    async def aclose(self) -> None:
        """Close every connection."""
        await self._inner.aclose()


class _Limited(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        async for part in self._inner:
            received += len(part)
            if received > MAX_BYTES:
                raise OversizeResponse("too long")
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()


def _key_header(options: ModelOptions) -> dict[str, str]:
    if not options.key:
        return {}
    if options.provider == "anthropic":
        return {"x-api-key": options.key}
    return {"authorization": f"Bearer {options.key}"}


def http_client(options: ModelOptions, trusted: ssl.SSLContext) -> httpx2.AsyncClient:
    """An HTTP client for one endpoint."""
    return httpx2.AsyncClient(
        transport=EndpointTransport(options, trusted),
        timeout=httpx2.Timeout(options.seconds, connect=CONNECT_SECONDS),
        trust_env=False,
        follow_redirects=False,
    )
