"""The web capabilities of one call."""

import secrets
from dataclasses import dataclass

from mcp_toolserver.capabilities.call_scope import Scope
from mcp_toolserver.capabilities.web import WebAnswer, WebHits, WebQuery, WebRead, WebSend
from mcp_toolserver.runtime.web.client import FetchOptions, HttpClient, Request, Response
from mcp_toolserver.runtime.web.guard import Guard
from mcp_toolserver.runtime.web.search_client import SearchClient
from mcp_toolserver.text.web.urls import parse_url


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

    async def get(self, request: WebRead) -> WebAnswer:
        """Read an address and follow redirects, each checked like the first address.

        Responses to a caller's own headers are not cached.
        """
        outgoing = Request(
            url=parse_url(request.url),
            headers=request.headers,
            most=request.most,
            is_cacheable=not request.headers,
        )
        options = FetchOptions(
            guard=self.sources.guard,
            seconds=request.seconds,
            refuses=self.scope.refuses,
            obeys_robots=self.sources.obeys_robots,
        )
        return _answer(await self.sources.http.fetch(outgoing, options))

    async def search(self, query: WebQuery) -> WebHits:
        """Search with the engine of this session."""
        hits, provider, left = await self.sources.search_client.search(query, self.scope.session)
        return WebHits(hits=hits, provider=provider, left=left, mark=_mark())


@dataclass(frozen=True)
class WebSender:
    """Sends requests of any method, under the same guard as `WebFetcher`."""

    sources: WebServices
    scope: Scope

    async def send(self, request: WebSend) -> WebAnswer:
        """Raises: as for `WebFetcher`; robots.txt is not asked."""
        outgoing = Request(
            url=parse_url(request.url),
            method=request.method,
            headers=request.headers,
            body=request.body,
            most=request.most,
        )
        options = FetchOptions(guard=self.sources.guard, seconds=request.seconds, refuses=self.scope.refuses)
        return _answer(await self.sources.http.fetch(outgoing, options))


def _answer(reply: Response) -> WebAnswer:
    return WebAnswer(
        url=str(reply.url),
        status=reply.status,
        reason=reply.reason,
        headers=reply.headers,
        body=reply.body,
        complete=reply.complete,
        mark=_mark(),
    )


def _mark() -> str:
    return secrets.token_hex(4)
