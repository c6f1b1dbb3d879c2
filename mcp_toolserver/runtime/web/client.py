"""One exchange with the web: each hop checked like the first, credentials kept to where they were meant for,
and all of it bounded in time and bytes.
"""

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
from mcp_toolserver.runtime.web.cache import Cache, Kept, now, seconds_fresh
from mcp_toolserver.runtime.web.guard import Guard
from mcp_toolserver.runtime.web.robots import AGENT, MOST_BYTES, Courtesy
from mcp_toolserver.runtime.web.transport import GuardedNetwork, GuardedTransport, trust
from mcp_toolserver.text.urls import Url, joined

HOPS = 5
"""Redirects that are followed."""

_CONNECT_SECONDS = 10.0

_ANYWHERE = frozenset({"accept", "accept-language"})
"""Headers of a caller that also another site may see; in any other there may be a secret."""

_DEFAULTS = {
    "user-agent": f"{AGENT}/{__version__}",
    "accept": "text/markdown, text/html;q=0.9, application/xhtml+xml;q=0.9, text/plain;q=0.8, */*;q=0.5",
    "accept-encoding": ENCODINGS,
}


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A request."""

    url: Url
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names in lower case."""
    body: bytes | None = None
    most: int
    is_kept: bool = False
    """Whether an answer may come from the cache and go there."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An answer."""

    url: Url
    status: int
    headers: Mapping[str, str]
    body: bytes
    complete: bool

    @property
    def reason(self) -> str:
        """The usual words for the status."""
        try:
            return HTTPStatus(self.status).phrase
        except ValueError:
            return "unknown status"


@dataclass(frozen=True, kw_only=True)
class Errand:
    """How an exchange is to be gone about."""

    guard: Guard
    seconds: float
    refuses: Callable[[str], str | None] = lambda _: None
    """Why a redirect may not be followed; None when it may."""
    is_polite: bool = False
    """Whether robots.txt is asked."""


class Exchanges:
    """Speaks HTTP. It holds what is kept between exchanges: trust, robots.txt and the cache."""

    def __init__(
        self,
        guard: Guard,
        network: httpcore.AsyncNetworkBackend | None = None,
        trusted: ssl.SSLContext | None = None,
    ) -> None:
        self._network = network or _sockets()
        self._trusted = trusted
        self._cache = Cache()
        self._courtesy = Courtesy(read=self._read_robots)
        self._robots_errand = Errand(guard=guard, seconds=15.0)

    async def reply(self, ask: Ask, errand: Errand) -> Reply:
        """The answer, after at most `HOPS` redirects.

        Raises:
            Denied: a hop leads where it may not.
            Unavailable: there is no answer, or none that can be used.
            TimedOut: it did not come whole in time.
        """
        with anyio.move_on_after(errand.seconds):
            return await self._followed(ask, errand)
        raise TimedOut(f"{ask.url.host} did not answer in full within {errand.seconds:g} s.")

    async def _followed(self, ask: Ask, errand: Errand) -> Reply:
        for hop in range(HOPS + 1):
            errand.guard.check(ask.url)
            if hop and (why := errand.refuses(str(ask.url))):
                raise Denied(f"the address redirects to {ask.url}, which this call may not read: {why}")
            if errand.is_polite:
                await self._courtesy.check(ask.url)
            reply = await self._exchanged(ask, errand.guard)
            onward = redirected(ask, reply)
            if onward is None:
                return reply
            ask = onward
        raise Unavailable(f"the address redirects more than {HOPS} times; nothing was read")

    async def _exchanged(self, ask: Ask, guard: Guard) -> Reply:
        if not ask.is_kept:
            return await self._sent(ask, guard)
        kept = self._cache.get(str(ask.url))
        if kept is not None and kept.fresh_until > now():
            return _again(ask.url, kept)
        conditions = kept.conditions if kept else {}
        reply = await self._sent(replace(ask, headers={**ask.headers, **conditions}), guard)
        if reply.status == HTTPStatus.NOT_MODIFIED and kept is not None:
            reply = _again(ask.url, replace(kept, headers={**kept.headers, **reply.headers}))
        return self._remembered(reply)

    def _remembered(self, reply: Reply) -> Reply:
        seconds = seconds_fresh(reply.headers)
        self._cache.drop(str(reply.url))
        if reply.status == HTTPStatus.OK and seconds is not None:
            kept = Kept(
                headers=reply.headers, body=reply.body, complete=reply.complete, fresh_until=now() + seconds
            )
            self._cache.put(str(reply.url), kept)
        return reply

    async def _sent(self, ask: Ask, guard: Guard) -> Reply:
        network = GuardedNetwork(guard, self._network)
        async with GuardedTransport(network, await self._trust(ask.url)) as transport:
            return await _sent(ask, transport)

    async def _trust(self, url: Url) -> ssl.SSLContext | None:
        """Reading the certificates takes a tenth of a second: once, when needed, in a thread."""
        if url.scheme == "https" and self._trusted is None:
            self._trusted = await to_thread.run_sync(trust)
        return self._trusted

    async def _read_robots(self, url: Url) -> tuple[int, bytes]:
        reply = await self.reply(Ask(url=url, most=MOST_BYTES), self._robots_errand)
        return reply.status, reply.body


def _sockets() -> httpcore.AsyncNetworkBackend:
    found = httpcore.AnyIOBackend()
    assert isinstance(found, httpcore.AsyncNetworkBackend)
    return found


async def _sent(ask: Ask, transport: GuardedTransport) -> Reply:
    """Past the client of httpx, which keeps cookies and reads where a redirect leads."""
    request = httpx.Request(
        ask.method,
        str(ask.url),
        headers={**_DEFAULTS, **ask.headers},
        content=ask.body,
        extensions={"timeout": {"connect": _CONNECT_SECONDS}},
    )
    try:
        answer = await transport.handle_async_request(request)
        try:
            headers = {name.lower(): value for name, value in answer.headers.items()}
            encoding = headers.get("content-encoding", "").strip().lower()
            body, complete = b"", True
            if ask.method != "HEAD":
                body, complete = await read_body(answer.aiter_raw(), encoding, ask.most)
        finally:
            await answer.aclose()
    except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
        raise Unavailable(_failure(ask.url.host, error)) from None
    return Reply(url=ask.url, status=answer.status_code, headers=headers, body=body, complete=complete)


def _failure(host: str, error: Exception) -> str:
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(error)):
        return f"the certificate of {host} is not valid for that name; nothing was sent to it"
    if isinstance(error, httpcore.ConnectError | httpcore.ConnectTimeout):
        return f"{host} cannot be reached; check the address, or try later"
    return f"{host} broke off or does not speak HTTP"


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _again(url: Url, kept: Kept) -> Reply:
    return Reply(url=url, status=HTTPStatus.OK, headers=kept.headers, body=kept.body, complete=kept.complete)


def redirected(ask: Ask, reply: Reply) -> Ask | None:
    """The request that a redirect asks for; None where the reply is the answer.

    Raises:
        Denied: it leads out of the web, or from an encrypted connection to a plain one.
    """
    if reply.status not in (301, 302, 303, 307, 308) or "location" not in reply.headers:
        return None
    try:
        url = joined(ask.url, reply.headers["location"])
    except ValueError as error:
        raise Denied(f"{ask.url.host} redirects to where nothing is fetched from: {error}") from None
    if ask.url.scheme == "https" and url.scheme == "http":
        raise Denied(f"{ask.url.host} redirects from https to http, which is refused")
    again = ask
    if ask.method != "HEAD" and (reply.status == 303 or (reply.status < 303 and ask.method == "POST")):
        again = replace(ask, method="GET", body=None)
    if url.origin == ask.url.origin:
        return replace(again, url=url)
    if again.method not in ("GET", "HEAD"):
        # What was meant for one site is not handed to another.
        return None
    carried = {name: value for name, value in again.headers.items() if name in _ANYWHERE}
    return replace(again, url=url, headers=carried, body=None)
