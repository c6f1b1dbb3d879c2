"""Restricts the usable tools temporarily."""

import threading
from collections.abc import Iterable
from typing import Literal

from mcp_toolserver.custom_tools.pool import ToolPool
from mcp_toolserver.custom_tools.tool import Tool

Nesting = Literal["intersect", "replace"]
"""Whether an inner restriction intersects with the outer ones, or replaces them while it lasts."""


class ToolRestrictionStack:
    """A thread-safe stack of restrictions.

    Without restrictions every tool may be used; an empty restriction allows none. Extra pops are ignored.
    """

    def __init__(self, nesting: Nesting = "intersect") -> None:
        self._nesting = nesting
        self._lock = threading.Lock()
        self._levels: tuple[frozenset[str], ...] = ()

    def push(self, allowed: Iterable[str]) -> None:
        """Add a restriction that allows only these tools."""
        level = frozenset(name.casefold() for name in allowed)
        with self._lock:
            outer = self._levels[-1] if self._levels and self._nesting == "intersect" else level
            self._levels = (*self._levels, level & outer)

    def pop(self) -> None:
        """Remove the last restriction."""
        with self._lock:
            self._levels = self._levels[:-1]

    def __len__(self) -> int:
        return len(self._levels)

    def allows(self, name: str) -> bool:
        """Whether the tool may be used now."""
        levels = self._levels
        return not levels or name.casefold() in levels[-1]

    def filter(self, tools: Iterable[Tool]) -> ToolPool:
        """Return those of `tools` that may be used now."""
        levels = self._levels
        return ToolPool(tuple(tool for tool in tools if not levels or tool.name.casefold() in levels[-1]))
