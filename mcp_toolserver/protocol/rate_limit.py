"""Limits the requests that clients have in progress and the tool calls that they make in a minute.

A client is identified by its session, or without one by its address and the name that it sends. This keeps
clients from blocking each other. A client can send many names; the limit on all requests together still
applies to it.
"""

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from mcp_toolserver.protocol.refusals import FULL, Refusal, too_fast, too_many

_REMEMBERED = 1024
"""Clients that the rate limiter remembers; beyond that it forgets the least recent one."""


def is_counted(method: str) -> bool:
    """Whether a request counts. A ping does not, because it shows that a busy server is alive."""
    return method != "ping"


@dataclass(frozen=True, kw_only=True)
class RequestLimits:
    requests: int = 256
    """In progress at the same time, of all clients."""
    of_one: int = 128
    """In progress at the same time, of one client."""
    per_minute: int = 0
    """Tool calls per minute of one client; 0 means no limit."""


class ConcurrencyLimiter:
    """Limits the requests in progress, in all and by client."""

    def __init__(self, limits: RequestLimits, now: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._rate_limiter = RateLimiter(limits.per_minute, now) if limits.per_minute else None
        self._count = 0
        self._by_client: Counter[str] = Counter()

    def acquire(self, client: str, method: str) -> Refusal | None:
        """Count a request; returns a refusal over a limit. Without one the caller must call `release`."""
        if self._count >= self.limits.requests:
            return FULL
        if self._by_client[client] >= self.limits.of_one:
            return too_many(self.limits.of_one)
        if self._rate_limiter and method == "tools/call" and (seconds := self._rate_limiter.take(client)):
            return too_fast(self.limits.per_minute, seconds)
        self._count += 1
        self._by_client[client] += 1
        return None

    def release(self, client: str) -> None:
        self._count -= 1
        self._by_client[client] -= 1
        if not self._by_client[client]:
            del self._by_client[client]


class LimiterOfName(ConcurrencyLimiter):
    """Limits the requests of all clients with the token of one name, within the limits of the server."""

    def __init__(
        self,
        name: str,
        limits: RequestLimits,
        shared: ConcurrencyLimiter,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        # All requests are of one client here, so that its limit is the one that answers.
        super().__init__(replace(limits, requests=limits.of_one + 1), now)
        self._name = name
        self._shared = shared

    def acquire(self, client: str, method: str) -> Refusal | None:
        if (refusal := super().acquire(self._name, method)) is not None:
            return refusal
        if (refusal := self._shared.acquire(f"{self._name} {client}", method)) is not None:
            super().release(self._name)
        return refusal

    def release(self, client: str) -> None:
        self._shared.release(f"{self._name} {client}")
        super().release(self._name)


class RateLimiter:
    """Limits calls per minute by client, with GCRA: a burst of a minute's calls, then evenly."""

    def __init__(self, per_minute: int, now: Callable[[], float]) -> None:
        self._step = 60 / per_minute
        self._now = now
        self._rested: dict[str, float] = {}
        """By client the time at which its bucket is empty; the most recent client is last."""

    def take(self, client: str) -> int:
        """Count a call and return 0, or return the whole seconds until the client may call."""
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
