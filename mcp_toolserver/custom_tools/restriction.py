"""Which tools may be used now, for as long as something narrower runs."""

import threading
from collections.abc import Iterable
from typing import Literal

from mcp_toolserver.library.pool import ToolPool
from mcp_toolserver.library.values import Tool

Nesting = Literal["intersect", "replace"]
"""Whether an inner restriction adds to the outer ones, or takes their place while it lasts."""


class ToolRestrictionStack:
    """Restrictions, the last on top; safe to use from several threads.

    Without any, every tool may be used. An empty restriction allows none. Popping more than was pushed does
    nothing.
    """

    def __init__(self, nesting: Nesting = "intersect") -> None:
        self._nesting = nesting
        self._lock = threading.Lock()
        self._levels: tuple[frozenset[str], ...] = ()

    def push(self, allowed: Iterable[str]) -> None:
        """Allow only these from now on."""
        level = frozenset(name.casefold() for name in allowed)
        with self._lock:
            outer = self._levels[-1] if self._levels and self._nesting == "intersect" else level
            self._levels = (*self._levels, level & outer)

    def pop(self) -> None:
        """Take back the last restriction."""
        with self._lock:
            self._levels = self._levels[:-1]

    def __len__(self) -> int:
        return len(self._levels)

    def allows(self, name: str) -> bool:
        """Whether the tool may be used now."""
        levels = self._levels
        return not levels or name.casefold() in levels[-1]

    def filter(self, tools: Iterable[Tool]) -> ToolPool:
        """Those of `tools` that may be used now."""
        levels = self._levels
        return ToolPool(tuple(tool for tool in tools if not levels or tool.name.casefold() in levels[-1]))
