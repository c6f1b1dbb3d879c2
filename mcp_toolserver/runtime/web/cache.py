"""An in-memory cache of responses, so that a page read in parts is fetched once and an unchanged page is not
sent again."""

import re
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

MOST_BYTES = 32 * 1024 * 1024
USUAL_SECONDS = 120.0
"""Lifetime of a response without caching headers."""
MOST_SECONDS = 900.0

_MAX_AGE = re.compile(r"(?:^|,)\s*max-age\s*=\s*\"?([0-9]{1,9})")


@dataclass(frozen=True, kw_only=True)
class CacheEntry:
    """A cached response."""

    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    complete: bool
    fresh_until: float

    @property
    def conditions(self) -> dict[str, str]:
        """Conditional headers, with which the server sends only a changed response."""
        asked = {
            "if-none-match": self.headers.get("etag"),
            "if-modified-since": self.headers.get("last-modified"),
        }
        return {name: value for name, value in asked.items() if value}


def freshness_seconds(headers: Mapping[str, str]) -> float | None:
    """Return how long a response is fresh; None if it must not be cached."""
    said = headers.get("cache-control", "").lower()
    if "no-store" in said or headers.get("vary", "").strip() == "*":
        return None
    if "no-cache" in said:
        return 0.0
    found = _MAX_AGE.search(said)
    return min(float(found[1]), MOST_SECONDS) if found else USUAL_SECONDS


@dataclass(frozen=True)
class Cache:
    """The most recently used responses by URL."""

    most: int = MOST_BYTES
    _entries: OrderedDict[str, CacheEntry] = field(default_factory=OrderedDict[str, CacheEntry])

    def get(self, key: str) -> CacheEntry | None:
        """Return the entry, fresh or stale."""
        if key in self._entries:
            self._entries.move_to_end(key)
        return self._entries.get(key)

    def put(self, key: str, entry: CacheEntry) -> None:
        """Store an entry; evict the oldest ones if needed."""
        self._entries[key] = entry
        self._entries.move_to_end(key)
        while sum(len(one.body) for one in self._entries.values()) > self.most:
            self._entries.popitem(last=False)

    def drop(self, key: str) -> None:
        """Remove an entry."""
        self._entries.pop(key, None)


def now() -> float:
    """Return the time on the clock of `CacheEntry.fresh_until`."""
    return time.monotonic()
