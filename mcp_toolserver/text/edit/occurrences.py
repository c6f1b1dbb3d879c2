"""Finds the occurrences of a text in another, ignoring the kind of line endings: models cannot see a carriage
return.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

LINES_NAMED = 10


@dataclass(frozen=True, kw_only=True)
class Occurrences:
    """The places of `wanted` in `content`."""

    content: str
    text: str
    """The searched text: `content`, or `content` with every "\\r\\n" as "\\n"."""
    wanted: str
    by_bytes: bool
    """Matches are exactly what was asked for, line endings included."""

    @property
    def count(self) -> int:
        """Number of non-overlapping occurrences, from the start."""
        return self.text.count(self.wanted)

    def spans(self) -> Iterator[tuple[int, int]]:
        """Start and end of each in `content`, none overlapping another."""
        size = len(self.wanted)
        ends = (end for place in places(self.text, self.wanted, size) for end in (place, place + size))
        found = ends if self.by_bytes else _unfolded(self.content, self.text, ends)
        return zip(found, found, strict=True)


def occurrences(content: str, wanted: str) -> Occurrences:
    """Find every occurrence of `wanted`, which is not empty.

    "\\n" in `wanted` also stands for "\\r\\n" in the content. "\\r\\n" in `wanted` stands for itself, and for
    "\\n" where that occurs nowhere.
    """
    if "\n" not in wanted or "\r\n" not in content + wanted or ("\r" in wanted and wanted in content):
        return Occurrences(content=content, text=content, wanted=wanted, by_bytes=True)
    return Occurrences(content=content, text=folded(content), wanted=folded(wanted), by_bytes=False)


def places(text: str, wanted: str, step: int = 1) -> Iterator[int]:
    """Yield the places of `wanted`, each at least `step` after the one before."""
    place = text.find(wanted)
    while place >= 0:
        yield place
        place = text.find(wanted, place + step)


def folded(text: str) -> str:
    """Return `text` with "\\n" for every "\\r\\n"."""
    return text.replace("\r\n", "\n")


def distinct_lines(text: str, places: Iterable[int]) -> tuple[int, ...]:
    """Return the 1-based numbers of the lines that contain these ascending places, each once."""
    numbers: dict[int, None] = {}
    line, last = 1, 0
    for place in places:
        line += text.count("\n", last, place)
        last = place
        numbers[line] = None
    return tuple(numbers)


def where(text: str, wanted: str) -> str:
    """Name the lines on which the first places of `wanted` begin."""
    found = list(islice(places(text, wanted), LINES_NAMED + 1))
    return named_lines(distinct_lines(text, found[:LINES_NAMED]), more=len(found) > LINES_NAMED)


def named_lines(lines: tuple[int, ...], more: bool) -> str:
    """Name lines: `line 4`, `lines 4 and 9`, or `lines 4, 9, 12 and further ones`."""
    *start, last = (*map(str, lines), "further ones") if more else map(str, lines)
    return f"lines {', '.join(start)} and {last}" if start else f"line {last}"


def _unfolded(content: str, plain: str, places: Iterable[int]) -> Iterator[int]:
    """Convert ascending places in `plain`, the folded `content`, to places in `content`.

    Both have the same lines, and a line differs only in whether a carriage return ends it.
    """
    line = plain_line = last = 0
    for place in places:
        crossed = plain.count("\n", last, place)
        if crossed:
            plain_line = plain.rindex("\n", last, place) + 1
        for _ in range(crossed):
            line = content.index("\n", line) + 1
        last = place
        yield line + place - plain_line
