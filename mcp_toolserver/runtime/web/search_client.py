"""Searches the web with one engine per session, and limits searches per session and time per search."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from http import HTTPStatus

from mcp_toolserver.capabilities.web import WebHit, WebQuery
from mcp_toolserver.errors import Denied, Unavailable
from mcp_toolserver.runtime.web.client import FetchOptions, HttpClient
from mcp_toolserver.runtime.web.guard import Guard, PrivateHost
from mcp_toolserver.runtime.web.options import Provider
from mcp_toolserver.runtime.web.providers import ENGINES
from mcp_toolserver.text.web.search_results import chosen
from mcp_toolserver.text.web.urls import bracketed, url_pattern

MAX_PER_SESSION = 25
SECONDS = 15.0

_FORGET_AFTER = 24 * 3600.0
"""A session's count is reset after this time."""
_SESSIONS = 10_000


@dataclass(frozen=True)
class SearchBudget:
    """Counts the searches of each session."""

    clock: Callable[[], float] = time.monotonic
    _used: OrderedDict[str, tuple[float, int]] = field(default_factory=OrderedDict[str, tuple[float, int]])

    def take(self, session: str) -> int:
        """Count one search; return how many are left.

        Raises:
            Denied: none is left.
        """
        now = self.clock()
        started, used = self._used.get(session, (now, 0))
        if now - started > _FORGET_AFTER:
            started, used = now, 0
        if used >= MAX_PER_SESSION:
            raise Denied(
                f"This session has used its {MAX_PER_SESSION} searches. "
                "Use the results you have, or fetch known pages."
            )
        self._used[session] = (started, used + 1)
        while len(self._used) > _SESSIONS:
            self._used.popitem(last=False)
        return MAX_PER_SESSION - used - 1


@dataclass(frozen=True, kw_only=True)
class SearchClient:
    """Sends searches to the engines."""

    http: HttpClient
    guard: Guard
    providers: tuple[Provider, ...]
    budget: SearchBudget = field(default_factory=SearchBudget)

    async def search(self, query: WebQuery, session: str) -> tuple[tuple[WebHit, ...], str, int]:
        """Return the results, the engine and the number of searches left.

        Raises:
            Denied: no search is left, or the engine may not be contacted.
            Unavailable: the engine returns no results.
            TimedOut: the engine takes too long.
        """
        left = self.budget.take(session)
        provider = self._provider_for(session)
        engine = ENGINES[provider.engine]
        request = engine.request(provider.base, provider.key, query)
        reply = await self.http.fetch(request, FetchOptions(guard=self._guard(provider), seconds=SECONDS))
        if reply.status != HTTPStatus.OK:
            raise Unavailable(
                f"{provider.engine} answered {reply.status} {reply.reason}; {_advice(reply.status)}"
            )
        try:
            return chosen(engine.read(reply.body), query), provider.engine, left
        except ValueError:
            raise Unavailable(
                f"{provider.engine} returned something other than results; try again later"
            ) from None

    def _provider_for(self, session: str) -> Provider:
        """Return the provider of a session, always the same one."""
        number = int.from_bytes(sha256(session.encode()).digest()[:8])
        return self.providers[number % len(self.providers)]

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
