"""An HTTP client that checks every redirect like the first request, sends credentials only to their own site,
limits time and bytes, and caches responses: a page read in parts is fetched once, and an unchanged page is
not sent again."""

import re
import secrets
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus

import anyio
import httpcore
import httpx
from anyio import to_thread

from mcp_toolserver import __version__
from mcp_toolserver.capabilities.web import WebAnswer, WebSend
from mcp_toolserver.errors import Denied, TimedOut, Unavailable
from mcp_toolserver.runtime.web.guard import Guard
from mcp_toolserver.runtime.web.robots import AGENT, MOST_BYTES, RobotsChecker
from mcp_toolserver.runtime.web.transport import ENCODINGS, GuardedNetwork, create_tls_context, read_body
from mcp_toolserver.text.web.urls import Url, joined, parse_url

MAX_REDIRECTS = 5
"""Redirects that are followed."""

_CONNECT_SECONDS = 10.0
_ROBOTS_SECONDS = 15.0

_CROSS_ORIGIN_HEADERS = frozenset({"accept", "accept-language"})
"""Caller's headers that another site may see; any other may contain a secret."""

_DEFAULTS = {
    "user-agent": f"{AGENT}/{__version__}",
    "accept": "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, text/plain;q=0.8, */*;q=0.5",
    "accept-encoding": ENCODINGS,
}


@dataclass(frozen=True, kw_only=True)
class FetchOptions:
    """How to send a request."""

    guard: Guard
    refuses: Callable[[str], str | None] | None = None
    """Returns why a redirect is refused, or None."""
    obeys_robots: bool = False
    """Whether robots.txt is checked."""
    uses_cache: bool = False
    """Whether the cache may serve and store responses."""


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
        self._robots_options = FetchOptions(guard=guard)

    async def fetch(self, request: WebSend, options: FetchOptions) -> WebAnswer:
        """Send a request and return the response after at most `MAX_REDIRECTS` redirects.

        Raises:
            Denied: the guard or the caller refuses an address on the way.
            Unavailable: there is no usable response.
            TimedOut: the response was not complete in time.
        """
        with anyio.move_on_after(request.seconds):
            answer = await self._follow_redirects(request, options)
            return replace(answer, mark=secrets.token_hex(4))
        host = parse_url(request.url).host
        raise TimedOut(f"{host} did not answer in full within {request.seconds:g} s.")

    async def _follow_redirects(self, request: WebSend, options: FetchOptions) -> WebAnswer:
        for hop in range(MAX_REDIRECTS + 1):
            url = parse_url(request.url)
            options.guard.check(url)
            if hop and options.refuses and (why := options.refuses(request.url)):
                raise Denied(f"the address redirects to {url}, which this call may not read: {why}")
            if options.obeys_robots:
                await self._robots_checker.check(url)
            send = self._send_cached if options.uses_cache else self._send
            answer = await send(request, options.guard)
            next_request = redirect_of(request, answer)
            if next_request is None:
                return answer
            request = next_request
        raise Unavailable(f"the address redirects more than {MAX_REDIRECTS} times; nothing was read")

    async def _send_cached(self, request: WebSend, guard: Guard) -> WebAnswer:
        fresh_until, stored = self._cache.get(request.url)
        if stored is None:
            answer = await self._send(request, guard)
        elif fresh_until > time.monotonic():
            return stored
        else:
            asked = replace(request, headers={**request.headers, **_conditions(stored)})
            answer = await self._send(asked, guard)
            if answer.status == HTTPStatus.NOT_MODIFIED:
                answer = replace(stored, headers={**stored.headers, **answer.headers})
        self._cache.put(answer)
        return answer

    async def _send(self, request: WebSend, guard: Guard) -> WebAnswer:
        """Send one request without httpx's client, which would store cookies and parse redirects."""
        url = parse_url(request.url)
        outgoing = httpx.Request(
            request.method, request.url, headers={**_DEFAULTS, **request.headers}, content=request.body
        )
        pool = httpcore.AsyncConnectionPool(
            ssl_context=await self._tls_context(url), network_backend=GuardedNetwork(guard, self._network)
        )
        try:
            async with (
                pool,
                pool.stream(
                    request.method,
                    httpcore.URL(scheme=url.scheme, host=url.host, port=url.port, target=url.target),
                    headers=outgoing.headers.raw,
                    content=request.body,
                    extensions={"timeout": {"connect": _CONNECT_SECONDS}},
                ) as response,
            ):
                return await _answer(request, response)
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
            raise Unavailable(_failure_text(url.host, error)) from None

    async def _tls_context(self, url: Url) -> ssl.SSLContext | None:
        """Return the TLS context. Loading certificates takes 0.1 s, so it happens once, on demand, in a
        thread."""
        if url.scheme == "https" and self._trusted is None:
            self._trusted = await to_thread.run_sync(create_tls_context)
        return self._trusted

    async def _read_robots(self, url: Url) -> tuple[int, bytes]:
        request = WebSend(url=str(url), method="GET", headers={}, most=MOST_BYTES, seconds=_ROBOTS_SECONDS)
        answer = await self.fetch(request, self._robots_options)
        return answer.status, answer.body


def _sockets() -> httpcore.AsyncNetworkBackend:
    found = httpcore.AnyIOBackend()
    assert isinstance(found, httpcore.AsyncNetworkBackend)
    return found


async def _answer(request: WebSend, response: httpcore.Response) -> WebAnswer:
    headers = {name.lower(): value for name, value in httpx.Headers(response.headers).items()}
    encoding = headers.get("content-encoding", "").strip().lower()
    body, complete = b"", True
    if request.method != "HEAD":
        body, complete = await read_body(response.aiter_stream(), encoding, request.most)
    try:
        reason = HTTPStatus(response.status).phrase
    except ValueError:
        reason = "unknown status"
    return WebAnswer(
        url=request.url,
        status=response.status,
        reason=reason,
        headers=headers,
        body=body,
        complete=complete,
        mark="",
    )


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


def redirect_of(request: WebSend, answer: WebAnswer) -> WebSend | None:
    """Return the request that follows a redirect; None if the response is final.

    Raises:
        Denied: the redirect leaves the web, or goes from https to http.
    """
    if answer.status not in (301, 302, 303, 307, 308) or "location" not in answer.headers:
        return None
    here = parse_url(request.url)
    try:
        url = joined(here, answer.headers["location"])
    except ValueError as error:
        raise Denied(f"{here.host} redirects to an address that is not fetched: {error}") from None
    if here.scheme == "https" and url.scheme == "http":
        raise Denied(f"{here.host} redirects from https to http, which is refused")
    again = request
    if request.method != "HEAD" and (
        answer.status == 303 or (answer.status < 303 and request.method == "POST")
    ):
        again = replace(request, method="GET", body=None)
    if url.origin == here.origin:
        return replace(again, url=str(url))
    if again.method not in ("GET", "HEAD"):
        # A body or method meant for one site is not sent to another.
        return None
    carried = {name: value for name, value in again.headers.items() if name in _CROSS_ORIGIN_HEADERS}
    return replace(again, url=str(url), headers=carried, body=None)


# --- the cache -------------------------------------------------------------------------------------------

MOST_CACHED = 32 * 1024 * 1024
USUAL_SECONDS = 120.0
"""Lifetime of a response without caching headers."""
MOST_SECONDS = 900.0

_MAX_AGE = re.compile(r"(?:^|,)\s*max-age\s*=\s*\"?([0-9]{1,9})")


def _conditions(stored: WebAnswer) -> dict[str, str]:
    """Return the headers with which the server sends only a changed response."""
    names = {"if-none-match": "etag", "if-modified-since": "last-modified"}
    return {name: value for name, own in names.items() if (value := stored.headers.get(own))}


def freshness_seconds(headers: Mapping[str, str]) -> float | None:
    """Return how long a response is fresh; None if it must not be cached."""
    said = headers.get("cache-control", "").lower()
    if "no-store" in said or headers.get("vary", "").strip() == "*":
        return None
    if "no-cache" in said:
        return 0.0
    found = _MAX_AGE.search(said)
    return min(float(found[1]), MOST_SECONDS) if found else USUAL_SECONDS


@dataclass(frozen=True)
class Cache:
    """The most recently used responses by URL, each with the time until which it is fresh."""

    most: int = MOST_CACHED
    _entries: OrderedDict[str, tuple[float, WebAnswer]] = field(
        default_factory=OrderedDict[str, tuple[float, WebAnswer]]
    )

    def get(self, url: str) -> tuple[float, WebAnswer | None]:
        """Return the response, fresh or stale; None if there is none."""
        if url in self._entries:
            self._entries.move_to_end(url)
        return self._entries.get(url, (0.0, None))

    def put(self, answer: WebAnswer) -> None:
        """Store a response in place of the one before, if it may be cached; evict the oldest if needed."""
        seconds = freshness_seconds(answer.headers)
        self._entries.pop(answer.url, None)
        if answer.status != HTTPStatus.OK or seconds is None:
            return
        self._entries[answer.url] = (time.monotonic() + seconds, answer)
        while sum(len(one.body) for _, one in self._entries.values()) > self.most:
            self._entries.popitem(last=False)
