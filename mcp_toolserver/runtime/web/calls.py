"""The web capabilities of one call."""

from dataclasses import dataclass

from mcp_toolserver.capabilities.call_scope import Scope
from mcp_toolserver.capabilities.web import WebAnswer, WebHits, WebQuery, WebRead, WebSend
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
    """See `Fetch`."""

    sources: WebServices
    scope: Scope

    async def get(self, request: WebRead) -> WebAnswer:
        """See `Fetch.get`. Responses to a caller's own headers are not cached."""
        options = FetchOptions(
            guard=self.sources.guard,
            refuses=self.scope.refuses,
            obeys_robots=self.sources.obeys_robots,
            uses_cache=not request.headers,
        )
        sent = WebSend(
            url=request.url, method="GET", headers=request.headers, most=request.most, seconds=request.seconds
        )
        return await self.sources.http.fetch(sent, options)

    async def search(self, query: WebQuery) -> WebHits:
        """See `Fetch.search`."""
        return await self.sources.search_client.search(query, self.scope.session)


@dataclass(frozen=True)
class WebSender:
    """See `Send`."""

    sources: WebServices
    scope: Scope

    async def send(self, request: WebSend) -> WebAnswer:
        """See `Send.send`."""
        options = FetchOptions(guard=self.sources.guard, refuses=self.scope.refuses)
        return await self.sources.http.fetch(request, options)
