"""The web capabilities of one call."""

from collections.abc import Mapping
from dataclasses import dataclass

from mcp_toolserver.capabilities.call_scope import Scope
from mcp_toolserver.capabilities.web import WebAnswer, WebHits, WebQuery, WebSend
from mcp_toolserver.runtime.web.client import FetchOptions, HttpClient
from mcp_toolserver.runtime.web.guard import Guard
from mcp_toolserver.runtime.web.search_client import SearchClient


@dataclass(frozen=True, kw_only=True)
class WebServices:
    """The services shared by all calls."""

    guard: Guard
    http: HttpClient
    search_client: SearchClient
    obeys_robots: bool


@dataclass(frozen=True)
class WebFetcher:
    """Reads from the web with GET, from public addresses and those that the operator allows.

    All methods raise `Denied` (an address, a port, a rule, robots.txt), `Unavailable` (no such host, no
    answer, one that breaks the protocol) and `TimedOut`.
    """

    sources: WebServices
    scope: Scope

    async def get(self, url: str, *, headers: Mapping[str, str], most: int, seconds: float) -> WebAnswer:
        """Read an address and follow redirects, each checked like the first address; see `WebSend`.

        Responses to a caller's own headers are not cached.
        """
        options = FetchOptions(
            guard=self.sources.guard,
            refuses=self.scope.refuses,
            obeys_robots=self.sources.obeys_robots,
            uses_cache=not headers,
        )
        request = WebSend(url=url, headers=headers, most=most, seconds=seconds)
        return await self.sources.http.fetch(request, options)

    async def search(self, query: WebQuery) -> WebHits:
        """Search with the engine of this session."""
        return await self.sources.search_client.search(query, self.scope.session)


@dataclass(frozen=True)
class WebSender:
    """Sends requests of any method, under the same guard as `WebFetcher`."""

    sources: WebServices
    scope: Scope

    async def send(self, request: WebSend) -> WebAnswer:
        """Raises: as for `WebFetcher`; robots.txt is not asked."""
        options = FetchOptions(guard=self.sources.guard, refuses=self.scope.refuses)
        return await self.sources.http.fetch(request, options)
