"""An HTTP client that checks every redirect like the first request, sends credentials only to their own site,
and limits time and bytes."""

import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus

import anyio
import httpcore
import httpx
from anyio import to_thread

from mcp_toolserver import __version__
from mcp_toolserver.errors import Denied, TimedOut, Unavailable
from mcp_toolserver.runtime.web.body import ENCODINGS, read_body
from mcp_toolserver.runtime.web.cache import Cache, CacheEntry, freshness_seconds, now
from mcp_toolserver.runtime.web.guard import Guard
from mcp_toolserver.runtime.web.robots import AGENT, MOST_BYTES, RobotsChecker
from mcp_toolserver.runtime.web.transport import GuardedNetwork, GuardedTransport, create_tls_context
from mcp_toolserver.text.web.urls import Url, joined

MAX_REDIRECTS = 5
"""Redirects that are followed."""

_CONNECT_SECONDS = 10.0

_CROSS_ORIGIN_HEADERS = frozenset({"accept", "accept-language"})
"""Caller's headers that another site may see; any other may contain a secret."""

_DEFAULTS = {
    "user-agent": f"{AGENT}/{__version__}",
    "accept": "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, text/plain;q=0.8, */*;q=0.5",
    "accept-encoding": ENCODINGS,
}


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request to send."""

    url: Url
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names in lower case."""
    body: bytes | None = None
    most: int
    is_cacheable: bool = False
    """Whether the cache may serve and store the response."""


@dataclass(frozen=True, kw_only=True)
class Response:
    """A response received."""

    url: Url
    status: int
    headers: Mapping[str, str]
    body: bytes
    complete: bool

    @property
    def reason(self) -> str:
        """The standard phrase of the status."""
        try:
            return HTTPStatus(self.status).phrase
        except ValueError:
            return "unknown status"


@dataclass(frozen=True, kw_only=True)
class FetchOptions:
    """How to send a request."""

    guard: Guard
    seconds: float
    refuses: Callable[[str], str | None] | None = None
    """Returns why a redirect is refused, or None."""
    obeys_robots: bool = False
    """Whether robots.txt is checked."""


class HttpClient:
    """Sends requests. Holds the state shared by all requests: TLS context, robots.txt and cache."""

    def __init__(
        self,
        guard: Guard,
        network: httpcore.AsyncNetworkBackend | None = None,
        trusted: ssl.SSLContext | None = None,
    ) -> None:
        self._network = network or _sockets()
        self._trusted = trusted
        self._cache = Cache()
        self._robots_checker = RobotsChecker(read=self._read_robots)
        self._robots_options = FetchOptions(guard=guard, seconds=15.0)

    async def fetch(self, request: Request, options: FetchOptions) -> Response:
        """Send a request and return the response after at most `MAX_REDIRECTS` redirects.

        Raises:
            Denied: the guard or the caller refuses an address on the way.
            Unavailable: there is no usable response.
            TimedOut: the response was not complete in time.
        """
        with anyio.move_on_after(options.seconds):
            return await self._follow_redirects(request, options)
        raise TimedOut(f"{request.url.host} did not answer in full within {options.seconds:g} s.")

    async def _follow_redirects(self, request: Request, options: FetchOptions) -> Response:
        for hop in range(MAX_REDIRECTS + 1):
            options.guard.check(request.url)
            if hop and options.refuses and (why := options.refuses(str(request.url))):
                raise Denied(f"the address redirects to {request.url}, which this call may not read: {why}")
            if options.obeys_robots:
                await self._robots_checker.check(request.url)
            response = await self._exchange(request, options.guard)
            next_request = redirect_of(request, response)
            if next_request is None:
                return response
            request = next_request
        raise Unavailable(f"the address redirects more than {MAX_REDIRECTS} times; nothing was read")

    async def _exchange(self, request: Request, guard: Guard) -> Response:
        if not request.is_cacheable:
            return await self._send(request, guard)
        entry = self._cache.get(str(request.url))
        if entry is not None and entry.fresh_until > now():
            return _from_cache(request.url, entry)
        conditions = entry.conditions if entry else {}
        response = await self._send(replace(request, headers={**request.headers, **conditions}), guard)
        if response.status == HTTPStatus.NOT_MODIFIED and entry is not None:
            response = _from_cache(request.url, replace(entry, headers={**entry.headers, **response.headers}))
        return self._cache_response(response)

    def _cache_response(self, response: Response) -> Response:
        seconds = freshness_seconds(response.headers)
        self._cache.drop(str(response.url))
        if response.status == HTTPStatus.OK and seconds is not None:
            entry = CacheEntry(
                headers=response.headers,
                body=response.body,
                complete=response.complete,
                fresh_until=now() + seconds,
            )
            self._cache.put(str(response.url), entry)
        return response

    async def _send(self, request: Request, guard: Guard) -> Response:
        network = GuardedNetwork(guard, self._network)
        async with GuardedTransport(network, await self._tls_context(request.url)) as transport:
            return await _send(request, transport)

    async def _tls_context(self, url: Url) -> ssl.SSLContext | None:
        """Return the TLS context. Loading certificates takes 0.1 s, so it happens once, on demand, in a
        thread."""
        if url.scheme == "https" and self._trusted is None:
            self._trusted = await to_thread.run_sync(create_tls_context)
        return self._trusted

    async def _read_robots(self, url: Url) -> tuple[int, bytes]:
        response = await self.fetch(Request(url=url, most=MOST_BYTES), self._robots_options)
        return response.status, response.body


def _sockets() -> httpcore.AsyncNetworkBackend:
    found = httpcore.AnyIOBackend()
    assert isinstance(found, httpcore.AsyncNetworkBackend)
    return found


async def _send(request: Request, transport: GuardedTransport) -> Response:
    """Send without httpx's client, which would store cookies and parse redirects."""
    outgoing = httpx.Request(
        request.method,
        str(request.url),
        headers={**_DEFAULTS, **request.headers},
        content=request.body,
        extensions={"timeout": {"connect": _CONNECT_SECONDS}},
    )
    try:
        answer = await transport.handle_async_request(outgoing)
        try:
            headers = {name.lower(): value for name, value in answer.headers.items()}
            encoding = headers.get("content-encoding", "").strip().lower()
            body, complete = b"", True
            if request.method != "HEAD":
                body, complete = await read_body(answer.aiter_raw(), encoding, request.most)
        finally:
            await answer.aclose()
    except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
        raise Unavailable(_failure_text(request.url.host, error)) from None
    return Response(url=request.url, status=answer.status_code, headers=headers, body=body, complete=complete)


def _failure_text(host: str, error: Exception) -> str:
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error)):
        return f"the certificate of {host} is not valid for that name; nothing was sent to it"
    if isinstance(error, httpcore.ConnectError | httpcore.ConnectTimeout):
        return f"{host} cannot be reached; check the address, or try later"
    return f"{host} closed the connection or does not speak HTTP"


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _from_cache(url: Url, entry: CacheEntry) -> Response:
    return Response(
        url=url, status=HTTPStatus.OK, headers=entry.headers, body=entry.body, complete=entry.complete
    )


def redirect_of(request: Request, response: Response) -> Request | None:
    """Return the request that follows a redirect; None if the response is final.

    Raises:
        Denied: the redirect leaves the web, or goes from https to http.
    """
    if response.status not in (301, 302, 303, 307, 308) or "location" not in response.headers:
        return None
    try:
        url = joined(request.url, response.headers["location"])
    except ValueError as error:
        raise Denied(f"{request.url.host} redirects to an address that is not fetched: {error}") from None
    if request.url.scheme == "https" and url.scheme == "http":
        raise Denied(f"{request.url.host} redirects from https to http, which is refused")
    again = request
    if request.method != "HEAD" and (
        response.status == 303 or (response.status < 303 and request.method == "POST")
    ):
        again = replace(request, method="GET", body=None)
    if url.origin == request.url.origin:
        return replace(again, url=url)
    if again.method not in ("GET", "HEAD"):
        # A body or method meant for one site is not sent to another.
        return None
    carried = {name: value for name, value in again.headers.items() if name in _CROSS_ORIGIN_HEADERS}
    return replace(again, url=url, headers=carried, body=None)
