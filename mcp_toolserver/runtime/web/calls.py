"""The web for all calls, and the web capabilities of one call. A session searches with one engine; searches
per session and the time of each are limited."""

import json
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from http import HTTPStatus
from urllib.parse import quote, urlencode

import httpcore

from mcp_toolserver.capabilities.call_scope import Scope
from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.capabilities.web import WebAnswer, WebHit, WebHits, WebQuery, WebSend
from mcp_toolserver.errors import Denied, Unavailable
from mcp_toolserver.runtime.host_services import ServiceRequest
from mcp_toolserver.runtime.web.client import HttpClient
from mcp_toolserver.runtime.web.guard import Guard, PrivateHost, Resolve, system_resolve
from mcp_toolserver.runtime.web.options import Provider, WebOptions
from mcp_toolserver.text.web.search_results import brave, chosen, duckduckgo, flat, with_sites
from mcp_toolserver.text.web.urls import bracketed, canonical_url, url_pattern


class WebServices:
    """The web for all calls. `network` opens sockets and `trusted` verifies servers; None: the system's."""

    def __init__(
        self,
        options: WebOptions,
        *,
        resolve: Resolve = system_resolve,
        network: httpcore.AsyncNetworkBackend | None = None,
        trusted: ssl.SSLContext | None = None,
    ) -> None:
        self.guard = Guard(hosts=options.hosts, private=options.private, resolve=resolve)
        self.http = HttpClient(self.guard, network, trusted)
        self.search_client = SearchClient(
            http=self.http,
            guard=self.guard,
            providers=options.providers,
            budget=SearchBudget(options.searches),
        )
        self.obeys_robots = options.robots

    def provide(self, request: ServiceRequest) -> "WebFetcher | WebSender":
        call = WebFetcher if request.capability is Capability.FETCH else WebSender
        return call(self, request.scope)


@dataclass(frozen=True)
class WebFetcher:
    """Reads from the web with GET, from public addresses and those that the operator allows.

    All methods raise `Denied` (an address, a port, a rule, robots.txt), `Unavailable` (no such host, no
    answer, one that breaks the protocol) and `TimedOut`.
    """

    services: WebServices
    scope: Scope

    async def get(self, url: str, *, headers: Mapping[str, str], most: int, seconds: float) -> WebAnswer:
        """Read an address and follow redirects, each checked like the first address; see `WebSend`.

        Responses to a caller's own headers are not cached.
        """
        request = WebSend(url=url, headers=headers, most=most, seconds=seconds)
        return await self.services.http.fetch(
            request,
            self.services.guard,
            refuses=self.scope.refuses,
            obeys_robots=self.services.obeys_robots,
            uses_cache=not headers,
        )

    async def search(self, query: WebQuery) -> WebHits:
        return await self.services.search_client.search(query, self.scope.session)


@dataclass(frozen=True)
class WebSender:
    """Sends requests of any method, under the same guard as `WebFetcher`."""

    services: WebServices
    scope: Scope

    async def send(self, request: WebSend) -> WebAnswer:
        """Raises: as for `WebFetcher`; robots.txt is not asked."""
        services = self.services
        return await services.http.fetch(request, services.guard, refuses=self.scope.refuses)


_MOST = 2 * 1024 * 1024
"""Bytes of a response."""

_FORGET_AFTER = 24 * 3600.0
"""A session's count is reset after this time."""
_SESSIONS = 10_000


def _brave(provider: Provider, query: WebQuery) -> WebSend:
    headers = {"x-subscription-token": provider.key, "accept": "application/json"}
    parameters = {"q": with_sites(query), "count": "20", "text_decorations": "false"}
    return _get(provider, "/res/v1/web/search", parameters, headers)


def _tavily(provider: Provider, query: WebQuery) -> WebSend:
    body = {
        "query": query.text,
        "max_results": 20,
        "include_domains": query.allowed_domains,
        "exclude_domains": query.blocked_domains,
    }
    headers = {"authorization": f"Bearer {provider.key}", "content-type": "application/json"}
    sent = _get(provider, "/search", {}, headers)
    return replace(sent, method="POST", body=json.dumps(body).encode())


def _searxng(provider: Provider, query: WebQuery) -> WebSend:
    headers = {"authorization": f"Bearer {provider.key}"} if provider.key else {}
    return _get(provider, "/search", {"q": with_sites(query), "format": "json"}, headers)


def _get(provider: Provider, path: str, parameters: Mapping[str, str], headers: Mapping[str, str]) -> WebSend:
    query = urlencode(parameters, quote_via=quote)
    url = f"{provider.base.origin}{provider.base.path.rstrip('/')}{path}{'?' if query else ''}{query}"
    return WebSend(
        url=canonical_url(url), method="GET", headers=headers, most=_MOST, seconds=provider.seconds
    )


_ENGINES: Mapping[str, tuple[Callable[[Provider, WebQuery], WebSend], Callable[[bytes], list[WebHit]]]] = {
    "brave": (_brave, brave),
    "tavily": (_tavily, flat),
    "searxng": (_searxng, flat),
    "duckduckgo": (lambda at, query: _get(at, "/html/", {"q": with_sites(query)}, {}), duckduckgo),
}
"""What builds the request of each engine, and what parses its response."""


@dataclass(frozen=True)
class SearchBudget:
    most: int
    """Searches of one session."""
    clock: Callable[[], float] = time.monotonic
    _used: OrderedDict[str, tuple[float, int]] = field(default_factory=OrderedDict[str, tuple[float, int]])

    def take(self, session: str) -> int:
        """Count one search; return how many are left. Raises: Denied: none is left."""
        now = self.clock()
        started, used = self._used.get(session, (now, 0))
        if now - started > _FORGET_AFTER:
            started, used = now, 0
        if used >= self.most:
            raise Denied(
                f"This session has used its {self.most} searches. "
                "Use the results you have, or fetch known pages."
            )
        self._used[session] = (started, used + 1)
        while len(self._used) > _SESSIONS:
            self._used.popitem(last=False)
        return self.most - used - 1


@dataclass(frozen=True, kw_only=True)
class SearchClient:
    http: HttpClient
    guard: Guard
    providers: tuple[Provider, ...]
    budget: SearchBudget

    async def search(self, query: WebQuery, session: str) -> WebHits:
        """Search with the engine of the session.

        Raises:
            Denied: no search is left, or the engine may not be contacted.
            Unavailable: the engine returns no results.
            TimedOut: the engine takes too long.
        """
        left = self.budget.take(session)
        # A session always has the same one.
        number = int.from_bytes(sha256(session.encode()).digest()[:8])
        provider = self.providers[number % len(self.providers)]
        request, read = _ENGINES[provider.engine]
        reply = await self.http.fetch(request(provider, query), self._guard(provider))
        if reply.status != HTTPStatus.OK:
            raise Unavailable(
                f"{provider.engine} answered {reply.status} {reply.reason}; {_advice(reply.status)}"
            )
        try:
            hits = chosen(read(reply.body), query)
        except ValueError:
            raise Unavailable(
                f"{provider.engine} returned something other than results; try again later"
            ) from None
        return WebHits(hits=hits, provider=provider.engine, left=left, mark=reply.mark)

    def _guard(self, provider: Provider) -> Guard:
        """Return a guard that also permits a search engine named by the operator, for searches only."""
        if not provider.is_named:
            return self.guard
        named = PrivateHost(
            network=None, host=url_pattern(bracketed(provider.base.host)), port=provider.base.port
        )
        return replace(self.guard, private=(*self.guard.private, named))


def _advice(status: int) -> str:
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return "the operator has to check its key and settings"
    return "try again later"
