"""What one call gets of the web."""

import secrets
import ssl
from dataclasses import dataclass

import httpcore

from mcp_toolserver.capabilities.calls import Scope
from mcp_toolserver.capabilities.web import WebAnswer, WebHits, WebQuery, WebRead, WebSend
from mcp_toolserver.runtime.web.client import Ask, Errand, Exchanges, Reply
from mcp_toolserver.runtime.web.guard import Guard
from mcp_toolserver.runtime.web.options import WebOptions
from mcp_toolserver.runtime.web.searches import Searches
from mcp_toolserver.text.urls import parse_url


@dataclass(frozen=True, kw_only=True)
class Sources:
    """What all calls share."""

    guard: Guard
    exchanges: Exchanges
    searches: Searches
    is_polite: bool

    @classmethod
    def of(
        cls,
        options: WebOptions,
        guard: Guard,
        *,
        network: httpcore.AsyncNetworkBackend | None,
        trusted: ssl.SSLContext | None,
    ) -> "Sources":
        """Put them together."""
        exchanges = Exchanges(guard, network, trusted)
        searches = Searches(exchanges=exchanges, guard=guard, providers=options.providers)
        return cls(guard=guard, exchanges=exchanges, searches=searches, is_polite=options.robots)

    def fetching(self, scope: Scope) -> "Fetching":
        """For one call."""
        return Fetching(self, scope)

    def sending(self, scope: Scope) -> "Sending":
        """For one call."""
        return Sending(self, scope)


@dataclass(frozen=True)
class Fetching:
    """See `Fetch`."""

    sources: Sources
    scope: Scope

    async def get(self, request: WebRead) -> WebAnswer:
        """See `Fetch.get`. An answer to headers of a caller is for that caller alone."""
        ask = Ask(
            url=parse_url(request.url),
            headers=request.headers,
            most=request.most,
            is_kept=not request.headers,
        )
        errand = Errand(
            guard=self.sources.guard,
            seconds=request.seconds,
            refuses=self.scope.refuses,
            is_polite=self.sources.is_polite,
        )
        return _answer(await self.sources.exchanges.reply(ask, errand))

    async def search(self, query: WebQuery) -> WebHits:
        """See `Fetch.search`."""
        hits, provider, left = await self.sources.searches.search(query, self.scope.session)
        return WebHits(hits=hits, provider=provider, left=left, mark=_mark())


@dataclass(frozen=True)
class Sending:
    """See `Send`."""

    sources: Sources
    scope: Scope

    async def send(self, request: WebSend) -> WebAnswer:
        """See `Send.send`."""
        ask = Ask(
            url=parse_url(request.url),
            method=request.method,
            headers=request.headers,
            body=request.body,
            most=request.most,
        )
        errand = Errand(guard=self.sources.guard, seconds=request.seconds, refuses=self.scope.refuses)
        return _answer(await self.sources.exchanges.reply(ask, errand))


def _answer(reply: Reply) -> WebAnswer:
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
