"""Enforces the limits of a command: the kernel those of each process, polling those of all together.

Control groups would limit all processes in the kernel, but need one that an administrator has delegated.
"""

import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from mcp_toolserver.runtime.sandbox.broker.limit_settings import STARTING_FILES, CommandBounds, readable
from mcp_toolserver.runtime.sandbox.broker.resource_usage import Unlisted, Usage

SOONEST = 0.02
"""Seconds to the first look, and the least between two."""
LATEST = 0.25
"""The most between two, unless looking costs too much."""
SHARE = 0.05
"""Of a processor, spent on looking at one command."""

_MOST_FAILURES = 4
"""A command whose processes cannot be listed so many times in a row is ended."""

_SPARE_CPU_SECONDS = 10
"""The kernel ends a single process only so much later, and for good after as much again: whoever looks is to
be first, because it counts all processes and says why."""


# --- by the kernel ---------------------------------------------------------------------------------------


def apply(bounds: CommandBounds) -> None:
    """Limit this process and each that it starts, permanently."""
    cpu = bounds.cpu_seconds + _SPARE_CPU_SECONDS
    _lower(resource.RLIMIT_CORE, 0, 0)
    _lower(resource.RLIMIT_FSIZE, bounds.file_size, bounds.file_size)
    _lower(resource.RLIMIT_NOFILE, STARTING_FILES, bounds.open_files)
    _lower(resource.RLIMIT_CPU, cpu, cpu + _SPARE_CPU_SECONDS)


def _lower(kind: int, soft: int, hard: int) -> None:
    """Set a limit, unless the inherited one is lower."""
    inherited_soft, inherited_hard = resource.getrlimit(kind)
    hard = _least(hard, inherited_hard)
    resource.setrlimit(kind, (_least(soft, hard, inherited_soft), hard))


def _least(*limits: int) -> int:
    return min(limit for limit in limits if limit != resource.RLIM_INFINITY)


def ended_by(status: int | None, bounds: CommandBounds) -> str:
    """The limit for which the kernel ended a main process, by its status; empty if it was none."""
    if status == 128 + signal.SIGXFSZ:
        return f"more than {readable(bounds.file_size)} in one file"
    if status == 128 + signal.SIGXCPU:
        return _too_much_time(bounds)
    return ""


# --- by looking ------------------------------------------------------------------------------------------


def over(bounds: CommandBounds, usage: Usage) -> str | None:
    """The limit that `usage` exceeds, as text that continues "it used"."""
    if usage.processes > bounds.processes:
        return f"more than {bounds.processes:,} processes at once"
    if usage.threads > bounds.threads:
        return f"more than {bounds.threads:,} threads at once"
    if usage.memory > bounds.memory:
        return f"more than {readable(bounds.memory)} of memory"
    if usage.cpu_seconds > bounds.cpu_seconds:
        return _too_much_time(bounds)
    return None


def _too_much_time(bounds: CommandBounds) -> str:
    return f"more than {bounds.cpu_seconds:,} s of processor time"


@dataclass
class Watch:
    """Looks at what a command uses: soon after its start, then ever more rarely, but before it could have
    used half of what is left at the rate seen."""

    bounds: CommandBounds
    measure: Callable[[], Usage]
    """May raise Unlisted."""
    soonest: float = SOONEST
    latest: float = LATEST

    def __post_init__(self) -> None:
        self._failures = 0
        self._used = 0.0
        self._pause = self.soonest
        self._seen = time.monotonic()
        self.due = self._seen + self.soonest
        """When to look next, in monotonic time."""

    def look_if_due(self) -> str | None:
        """The bound that the command is over, as `over` names it."""
        if time.monotonic() < self.due:
            return None
        cost = _spent()
        try:
            usage = self.measure()
        except Unlisted as error:
            self._failures += 1
            self._seen = time.monotonic()
            self.due = self._seen + self.soonest
            return f"more than can be watched: {error}" if self._failures >= _MOST_FAILURES else None
        self._failures = 0
        self._plan(usage, _spent() - cost)
        return over(self.bounds, usage)

    def _plan(self, usage: Usage, cost: float) -> None:
        """Plan the next look after one that took `cost` seconds of processor time."""
        now = time.monotonic()
        used = self._part(usage)
        rate = (used - self._used) / (now - self._seen)
        planned = pause(self._pause, used, rate, soonest=self.soonest, latest=self.latest)
        self._pause = max(planned, cost / SHARE)
        self._used, self._seen, self.due = used, now, now + self._pause

    def _part(self, usage: Usage) -> float:
        """How much of its bounds the command uses: 1 is all of one of them."""
        bounds = self.bounds
        return max(
            usage.processes / bounds.processes,
            usage.threads / bounds.threads,
            usage.memory / bounds.memory,
            usage.cpu_seconds / bounds.cpu_seconds,
        )


def _spent() -> float:
    """Seconds of processor time of this process, and of the programs with which it looked."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def pause(
    last: float, used: float, rate: float, *, soonest: float = SOONEST, latest: float = LATEST
) -> float:
    """Seconds to the next look, after a pause of `last`, when a part `used` of the bounds is in use and grows
    by `rate` a second."""
    half = (1 - used) / rate / 2 if rate > 0 else latest
    return max(min(2 * last, half, latest), soonest)
