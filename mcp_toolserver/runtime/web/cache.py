"""Answers kept for a while, so that a page read in parts is fetched once and one that did not change is not
sent again. In memory only, and little of it.
"""

import re
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

MOST_BYTES = 32 * 1024 * 1024
USUAL_SECONDS = 120.0
"""How long an answer that says nothing about it is taken as it is."""
MOST_SECONDS = 900.0

_MAX_AGE = re.compile(r"(?:^|,)\s*max-age\s*=\s*\"?([0-9]{1,9})")


@dataclass(frozen=True, kw_only=True)
class Kept:
    """An answer that may be used again."""

    headers: Mapping[str, str]
    """In lower case."""
    body: bytes
    complete: bool
    fresh_until: float

    @property
    def conditions(self) -> dict[str, str]:
        """What to ask with, so that the server sends the answer only if it has changed."""
        asked = {
            "if-none-match": self.headers.get("etag"),
            "if-modified-since": self.headers.get("last-modified"),
        }
        return {name: value for name, value in asked.items() if value}


def seconds_fresh(headers: Mapping[str, str]) -> float | None:
    """How long an answer may be used without asking; None when it must not be kept."""
    said = headers.get("cache-control", "").lower()
    if "no-store" in said or headers.get("vary", "").strip() == "*":
        return None
    if "no-cache" in said:
        return 0.0
    found = _MAX_AGE.search(said)
    return min(float(found[1]), MOST_SECONDS) if found else USUAL_SECONDS


@dataclass(frozen=True)
class Cache:
    """The newest answers, by what was asked for."""

    most: int = MOST_BYTES
    _kept: OrderedDict[str, Kept] = field(default_factory=OrderedDict[str, Kept])

    def get(self, key: str) -> Kept | None:
        """The answer, fresh or not."""
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def put(self, key: str, kept: Kept) -> None:
        """Keep an answer; the oldest make room for it."""
        self._kept[key] = kept
        self._kept.move_to_end(key)
        while sum(len(one.body) for one in self._kept.values()) > self.most:
            self._kept.popitem(last=False)

    def drop(self, key: str) -> None:
        """Forget an answer."""
        self._kept.pop(key, None)


def now() -> float:
    """Of the clock that `Kept.fresh_until` is on."""
    return time.monotonic()
