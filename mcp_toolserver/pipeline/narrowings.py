"""The narrowings in force for the calls of each owner: those of plan mode, of skills, and of agents."""

import math
import time
from collections.abc import Callable

from mcp_toolserver.policy.rules import Narrowing

PLAN_MODE = "plan mode"
"""The key of the narrowing of plan mode."""


class Narrowings:
    """Narrowings by the owner of a call (`Caller.owner`), in memory. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._own: dict[str, dict[str, Narrowing]] = {}
        self._idle_limits: dict[tuple[str, str], float] = {}
        """Seconds without a call after which a narrowing ends, by owner and key; only those that end so."""
        self._used: dict[str, float] = {}
        """The time of the last call of each owner that has such narrowings."""
        self._parents: dict[str, str] = {}
        self._left: set[str] = set()
        """Owners who will not return, but started what still runs."""

    def of(self, owner: str) -> tuple[Narrowing, ...]:
        """What is in force for calls of `owner`, with that of whoever started it, in the order of `put`."""
        found: list[Narrowing] = []
        at: str | None = owner
        while at is not None:
            if at in self._used:
                self._drop_idle(at)
            found = [*self._own.get(at, {}).values(), *found]
            at = self._parents.get(at)
        return tuple(found)

    def put(self, owner: str, key: str, narrowing: Narrowing, *, idle_seconds: float = math.inf) -> None:
        """Take rights from the calls of `owner` from now on; replaces the narrowing with this key.

        It ends after `idle_seconds` without a call of `owner`, or of what `owner` started.
        """
        self._own.setdefault(owner, {})[key] = narrowing
        self._idle_limits.pop((owner, key), None)
        if idle_seconds < math.inf:
            self._idle_limits[owner, key] = idle_seconds
            self._used[owner] = self._clock()

    def get(self, owner: str, key: str) -> Narrowing | None:
        """The narrowing with this key that was put for `owner` itself."""
        return self._own.get(owner, {}).get(key)

    def holds(self, owner: str, key: str) -> bool:
        """Whether the narrowing with this key is in force for `owner`; asking is no call of `owner`."""
        one: str | None = owner
        while one is not None:
            if key in self._own.get(one, {}):
                return True
            one = self._parents.get(one)
        return False

    def remove(self, owner: str, key: str) -> None:
        """Lift the narrowing with this key, if there is one."""
        own = self._own.get(owner, {})
        own.pop(key, None)
        self._idle_limits.pop((owner, key), None)
        if not own:
            self._own.pop(owner, None)
            self._used.pop(owner, None)

    def adopt(self, child: str, parent: str) -> None:
        """Let calls of `child` also keep what is in force for `parent`, now and later."""
        if child not in self._ancestors(parent):
            self._parents[child] = parent

    def forget(self, owner: str) -> None:
        """Lift what was put for `owner`, who will not return, once all that it started is forgotten too:
        its end must not give rights back to work that still runs."""
        self._left.add(owner)
        while owner in self._left and owner not in self._parents.values():
            self._left.discard(owner)
            for key in tuple(self._own.get(owner, {})):
                self.remove(owner, key)
            owner = self._parents.pop(owner, "")

    def _drop_idle(self, owner: str) -> None:
        """Lift what ends because `owner` made no call for long; this is a call."""
        now = self._clock()
        idle, self._used[owner] = now - self._used[owner], now
        for key in tuple(self._own[owner]):
            if idle > self._idle_limits.get((owner, key), math.inf):
                self.remove(owner, key)

    def _ancestors(self, owner: str) -> set[str]:
        found = {owner}
        while (owner := self._parents.get(owner, "")) and owner not in found:
            found.add(owner)
        return found
