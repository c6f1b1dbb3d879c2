"""An HTTP client that checks every redirect like the first request, sends credentials only to their own site,
limits time and bytes, and caches responses: a page read in parts is fetched once, and an unchanged page is
not sent again.

It connects only to addresses that the guard permits. The check happens where the socket is opened, so no
redirect, retry or second lookup can bypass it.
"""

import re
import secrets
import ssl
import time
import zlib
from collections import OrderedDict
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path

import anyio
import certifi
import httpcore
import httpx
from anyio import to_thread

from mcp_toolserver import __version__
from mcp_toolserver.capabilities.web import WebAnswer, WebSend
from mcp_toolserver.errors import Denied, TimedOut, Unavailable
from mcp_toolserver.runtime.web.guard import Guard
from mcp_toolserver.runtime.web.robots import AGENT, MOST_BYTES, Rules, allows, rules_of
from mcp_toolserver.text.web.urls import Url, joined, parse_url

MAX_REDIRECTS = 5
"""Redirects that are followed."""

_CONNECT_SECONDS = 10.0
_ROBOTS_SECONDS = 15.0
_ROBOTS_LIFETIME = 3600.0
_MOST_SITES = 128
"""Sites whose robots.txt is kept."""

_CROSS_ORIGIN_HEADERS = frozenset({"accept", "accept-language"})
"""Caller's headers that another site may see; any other may contain a secret."""

_DEFAULTS = {
    "user-agent": f"{AGENT}/{__version__}",
    "accept": "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, text/plain;q=0.8, */*;q=0.5",
    # Others cannot be decompressed within limits here.
    "accept-encoding": "gzip",
}


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
        self._robots = OrderedDict[str, tuple[float, Rules]]()
        """The rules of each site, and the time until which they hold."""
        self._guard = guard

    async def fetch(
        self,
        request: WebSend,
        guard: Guard,
        *,
        refuses: Callable[[str], str | None] = lambda _: None,
        obeys_robots: bool = False,
        uses_cache: bool = False,
    ) -> WebAnswer:
        """Send a request and return the response after at most `MAX_REDIRECTS` redirects. `refuses` returns
        why a redirect is refused, or None.

        Raises:
            Denied: the guard, robots.txt or the caller refuses an address on the way.
            Unavailable: there is no usable response.
            TimedOut: the response was not complete in time.
        """
        send, following = (self._send_cached if uses_cache else self._send), request
        with anyio.move_on_after(request.seconds):
            for hop in range(MAX_REDIRECTS + 1):
                url = parse_url(following.url)
                guard.check(url)
                if hop and (why := refuses(following.url)):
                    raise Denied(f"the address redirects to {url}, which this call may not read: {why}")
                if obeys_robots:
                    await self.check_robots(url)
                answer = await send(following, guard)
                redirected = redirect_of(following, answer)
                if redirected is None:
                    return replace(answer, mark=secrets.token_hex(4))
                following = redirected
            raise Unavailable(f"the address redirects more than {MAX_REDIRECTS} times; nothing was read")
        host = parse_url(request.url).host
        raise TimedOut(f"{host} did not answer in full within {request.seconds:g} s.")

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

    async def check_robots(self, url: Url) -> None:
        """Check the site's robots.txt, fetched at most once an hour. Raises: Denied: it excludes the page."""
        until, rules = self._robots.get(url.origin, (0.0, ()))
        if until < time.monotonic():
            address = str(replace(url, target="/robots.txt"))
            request = WebSend(url=address, headers={}, most=MOST_BYTES, seconds=_ROBOTS_SECONDS)
            answer = await self.fetch(request, self._guard)
            rules = rules_of(answer.status, answer.body)
            self._robots[url.origin] = (time.monotonic() + _ROBOTS_LIFETIME, rules)
            while len(self._robots) > _MOST_SITES:
                self._robots.popitem(last=False)
        if not allows(rules, url.target):
            raise Denied(
                f"The robots.txt of {url.host} excludes this page. Do not retry; "
                "the operator can set web-robots = false."
            )


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
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes(error)):
        return f"the certificate of {host} is not valid for that name; nothing was sent to it"
    if isinstance(error, httpcore.ConnectError | httpcore.ConnectTimeout):
        return f"{host} cannot be reached; check the address, or try later"
    return f"{host} closed the connection or does not speak HTTP"


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and what caused it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


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


# --- connections and bodies ------------------------------------------------------------------------------

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
            there, here = stream.get_extra_info("server_addr"), stream.get_extra_info("client_addr")
            # A public host can reach itself under its public address.
            if there[0] == here[0] and not self._guard.is_named(host, address, there[1]):
                await stream.aclose()
                raise Denied(f"{host} is this machine, and fetching from there is refused. Do not retry.")
            return stream
        raise failure


_GZIP = 31
"""Makes zlib expect gzip and no other format."""


async def read_body(chunks: AsyncIterable[bytes], encoding: str, most: int) -> tuple[bytes, bool]:
    """Return at most `most` decoded bytes of a body, and whether that is all of it.

    Raises:
        Unavailable: the encoding was not requested, or the bytes do not match it.
    """
    if encoding not in ("", "identity", "gzip", "x-gzip"):
        raise Unavailable(f"the response uses the encoding {encoding[:20]!r}, which was not requested")
    inflate = zlib.decompressobj(_GZIP) if "gzip" in encoding else None
    content, received = bytearray(), 0
    async for chunk in chunks:
        received += len(chunk)
        rest = chunk
        while rest and (room := most + 1 - len(content)) > 0:
            if inflate is None:
                content += rest[:room]
                break
            try:
                content += inflate.decompress(rest, room)
            except zlib.error:
                raise Unavailable("the response does not match its declared encoding") from None
            rest = inflate.unconsumed_tail
            if inflate.unused_data:
                # A gzip member has ended, and another one follows.
                inflate, rest = zlib.decompressobj(_GZIP), inflate.unused_data
        # The second limits input that decompresses to nothing.
        if len(content) > most or received > most:
            return bytes(content[:most]), False
    return bytes(content), True


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
