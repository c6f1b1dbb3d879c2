"""Looks at what a command uses: more often while it grows, more rarely where a look takes long."""

import os
import time

from mcp_toolserver.runtime.sandbox.broker.limit_settings import CommandBounds
from mcp_toolserver.runtime.sandbox.broker.resource_limits import SHARE, over
from mcp_toolserver.runtime.sandbox.broker.resource_usage import Usage
from mcp_toolserver.runtime.sandbox.posix.family import Family, used_by
from mcp_toolserver.runtime.sandbox.posix.process_list import Unlisted, list_processes

SOONEST = 0.05
"""Seconds to the first look, and the least between two."""
LATEST = 0.5
"""The most between two, unless looking costs more than `SHARE` of a processor."""

_MOST_FAILURES = 4
"""A command whose processes cannot be listed so many times in a row is ended."""


class Watch:
    """Decides when to look at a command, and whether it is over a limit."""

    def __init__(self, family: Family, bounds: CommandBounds) -> None:
        self._family = family
        self._bounds = bounds
        self._used = 0.0
        self._pause = SOONEST
        self._failures = 0
        self._seen = time.monotonic()
        self.due = self._seen + SOONEST
        """When to look next, in monotonic time."""

    def look_if_due(self) -> str | None:
        """The limit that the command is over, in words that go on from "it used"."""
        if time.monotonic() < self.due:
            return None
        cost = _spent()
        try:
            usage = used_by(self._family.members(list_processes()))
        except Unlisted as error:
            self._failures += 1
            self._seen = time.monotonic()
            self.due = self._seen + SOONEST
            return f"more than can be watched: {error}" if self._failures >= _MOST_FAILURES else None
        self._failures = 0
        self._plan(_part(self._bounds, usage), _spent() - cost)
        return over(self._bounds, usage)

    def _plan(self, used: float, cost: float) -> None:
        now = time.monotonic()
        rate = (used - self._used) / max(now - self._seen, SOONEST)
        half = (1 - used) / rate / 2 if rate > 0 else LATEST
        self._pause = max(min(2 * self._pause, half, LATEST), SOONEST, cost / SHARE)
        self._used, self._seen, self.due = used, now, now + self._pause


def _part(bounds: CommandBounds, usage: Usage) -> float:
    """How much of its bounds the command uses: 1 is all of one of them."""
    return max(
        usage.processes / bounds.processes,
        usage.memory / bounds.memory,
        usage.cpu_seconds / bounds.cpu_seconds,
    )


def _spent() -> float:
    """Seconds of processor time of this process and of the children that it waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
