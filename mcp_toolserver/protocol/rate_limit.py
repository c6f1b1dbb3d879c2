"""How many requests clients may have in progress, and how many calls they may make in a minute.

Who holds the token may do what it allows, so clients differ by what is known of them: their session, and
without one their address and the name they give themselves. That keeps them out of each other's way. It does
not keep one from giving itself many names; the bound on all requests together holds for that one as well.
"""

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from mcp_toolserver.protocol.refusal import FULL, Refusal, too_fast, too_many

_REMEMBERED = 1024
"""Clients whose pace is known; beyond, the one unheard of for longest starts anew."""


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """What is allowed."""

    requests: int = 256
    """In progress at the same time."""
    of_one: int = 128
    """Those of one client."""
    per_minute: int = 0
    """Calls of tools by one client; 0 is no bound."""


class Quota:
    """Counts requests in progress, in all and by client."""

    def __init__(self, allowance: Allowance, now: Callable[[], float] = time.monotonic) -> None:
        self._allowance = allowance
        self._pace = Pace(allowance.per_minute, now) if allowance.per_minute else None
        self._count = 0
        self._by_client: Counter[str] = Counter()

    @property
    def in_progress(self) -> int:
        """Requests that have entered and not left."""
        return self._count

    @property
    def clients(self) -> int:
        """Those that have a request in progress."""
        return len(self._by_client)

    def enter(self, client: str, method: str) -> Refusal | None:
        """Count a request in; or why that cannot be. One that entered has to leave."""
        if self._count >= self._allowance.requests:
            return FULL
        if self._by_client[client] >= self._allowance.of_one:
            return too_many(self._allowance.of_one)
        if self._pace and method == "tools/call" and (seconds := self._pace.take(client)):
            return too_fast(self._allowance.per_minute, seconds)
        self._count += 1
        self._by_client[client] += 1
        return None

    def leave(self, client: str) -> None:
        """Count a request out."""
        self._count -= 1
        self._by_client[client] -= 1
        if not self._by_client[client]:
            del self._by_client[client]


class Pace:
    """So many calls a minute by client: as many at once after a minute's rest, and then evenly."""

    def __init__(self, per_minute: int, now: Callable[[], float]) -> None:
        self._step = 60 / per_minute
        self._now = now
        self._rested: dict[str, float] = {}
        """When a client will have been at rest long enough to have all its calls again; who was heard of last
        is last."""

    @property
    def clients(self) -> int:
        """Those that are remembered."""
        return len(self._rested)

    def take(self, client: str) -> int:
        """Whole seconds until the client may call; 0 for now, which uses up one call."""
        now = self._now()
        rested = max(now, self._rested.get(client, now)) + self._step
        # Half a step, because sums of fractions are not exact.
        if (early := rested - now - 60) > self._step / 2:
            return math.ceil(early)
        self._rested.pop(client, None)
        self._rested[client] = rested
        if len(self._rested) > _REMEMBERED:
            del self._rested[next(iter(self._rested))]
        return 0
