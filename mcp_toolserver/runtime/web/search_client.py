"""Searching the web: one engine per session, so many searches per session, so many seconds per search."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from http import HTTPStatus

from mcp_toolserver.capabilities.web import WebHit, WebQuery
from mcp_toolserver.errors import Denied, Unavailable
from mcp_toolserver.runtime.web.client import Errand, Exchanges
from mcp_toolserver.runtime.web.guard import Guard, Private
from mcp_toolserver.runtime.web.options import Provider
from mcp_toolserver.runtime.web.providers import ENGINES
from mcp_toolserver.text.urls import bracketed, url_pattern
from mcp_toolserver.text.web_search import chosen

PER_SESSION = 25
SECONDS = 15.0

_FORGET_AFTER = 24 * 3600.0
"""Sessions that nobody ends are begun anew after this long."""
_SESSIONS = 10_000


@dataclass(frozen=True)
class Budget:
    """How many searches each session has had."""

    clock: Callable[[], float] = time.monotonic
    _used: OrderedDict[str, tuple[float, int]] = field(default_factory=OrderedDict[str, tuple[float, int]])

    def take(self, session: str) -> int:
        """Count one search; how many are left.

        Raises:
            Denied: there is none left.
        """
        now = self.clock()
        started, used = self._used.get(session, (now, 0))
        if now - started > _FORGET_AFTER:
            started, used = now, 0
        if used >= PER_SESSION:
            raise Denied(
                f"This session has had its {PER_SESSION} searches. "
                "Work with what was found, or fetch known pages."
            )
        self._used[session] = (started, used + 1)
        while len(self._used) > _SESSIONS:
            self._used.popitem(last=False)
        return PER_SESSION - used - 1


@dataclass(frozen=True, kw_only=True)
class Searches:
    """Asks the engines."""

    exchanges: Exchanges
    guard: Guard
    providers: tuple[Provider, ...]
    budget: Budget = field(default_factory=Budget)

    async def search(self, query: WebQuery, session: str) -> tuple[tuple[WebHit, ...], str, int]:
        """Results, the engine they are from, and how many searches are left.

        Raises:
            Denied: the session has none left, or the engine may not be reached.
            Unavailable: the engine does not answer, or not with results.
            TimedOut: it takes too long.
        """
        left = self.budget.take(session)
        provider = self._of(session)
        engine = ENGINES[provider.engine]
        ask = engine.ask(provider.base, provider.key, query)
        reply = await self.exchanges.reply(ask, Errand(guard=self._guard(provider), seconds=SECONDS))
        if reply.status != HTTPStatus.OK:
            raise Unavailable(
                f"{provider.engine} answered {reply.status} {reply.reason}; {_advice(reply.status)}"
            )
        try:
            return chosen(engine.read(reply.body), query), provider.engine, left
        except ValueError:
            raise Unavailable(
                f"{provider.engine} answered with no results but something else; try again later"
            ) from None

    def _of(self, session: str) -> Provider:
        """Always the same for a session."""
        number = int.from_bytes(sha256(session.encode()).digest()[:8])
        return self.providers[number % len(self.providers)]

    def _guard(self, provider: Provider) -> Guard:
        """What the operator names as a search engine may be reached for searches, and for nothing else."""
        if not provider.is_named:
            return self.guard
        named = Private(
            network=None, host=url_pattern(bracketed(provider.base.host)), port=provider.base.port
        )
        return replace(self.guard, private=(*self.guard.private, named))


def _advice(status: int) -> str:
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return "the operator has to look at its key or its settings"
    return "try again later"
