"""Looks at what a command uses: more often while it grows, more rarely where a look takes long."""

import os
import time

from mcp_toolserver.runtime.sandbox.broker.limit_settings import CommandBounds
from mcp_toolserver.runtime.sandbox.broker.resource_limits import Pace, over
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
        self._pace = Pace(bounds, soonest=SOONEST, latest=LATEST)
        self._failures = 0

    @property
    def due(self) -> float:
        """When to look next, in monotonic time."""
        return self._pace.due

    def look_if_due(self) -> str | None:
        """The limit that the command is over, in words that go on from "it used"."""
        if time.monotonic() < self.due:
            return None
        cost = _spent()
        try:
            usage = used_by(self._family.members(list_processes()))
        except Unlisted as error:
            self._failures += 1
            self._pace.failed()
            return f"more than can be watched: {error}" if self._failures >= _MOST_FAILURES else None
        self._failures = 0
        self._pace.looked(usage, _spent() - cost)
        return over(self._bounds, usage)


def _spent() -> float:
    """Seconds of processor time of this process and of the children that it waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
