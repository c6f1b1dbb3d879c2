"""The web for all calls, and the web capabilities of one call."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass

import httpcore

from mcp_toolserver.capabilities.call_scope import Scope
from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.capabilities.web import WebAnswer, WebHits, WebQuery, WebSend
from mcp_toolserver.runtime.host_services import ServiceRequest
from mcp_toolserver.runtime.web.client import HttpClient
from mcp_toolserver.runtime.web.guard import Guard, Resolve, system_resolve
from mcp_toolserver.runtime.web.options import WebOptions
from mcp_toolserver.runtime.web.search_client import SearchBudget, SearchClient


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
