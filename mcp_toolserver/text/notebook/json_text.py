"""Locates the values in a JSON text and detects its formatting, so that one can be replaced or inserted like
those around it, and the rest stays unchanged.
"""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pydantic import JsonValue

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
_NEEDLESS = re.compile(r"(?<!\\)(?:\\\\)*\\u(?!00[01])")
"""The escape of a character that could stand there itself."""

Splice = tuple[int, int, str]
"""A text in place of what lies from a start to an end."""


@dataclass(frozen=True)
class Part:
    """A value and its place."""

    start: int
    end: int
    value: JsonValue


def after_space(text: str, at: int) -> int:
    """Return the first position from `at` on that is not white space."""
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def decoded(text: str, at: int) -> Part:
    """Decode the value that starts at `at`.

    Raises:
        ValueError, RecursionError: it is not JSON, or nested too deeply.
    """
    value, end = _DECODER.raw_decode(text, at)
    return Part(at, end, value)


def elements(text: str, at: int) -> tuple[list[Part], int]:
    """Return the elements of the array that starts at `at`, and its end. Raises: as `decoded`."""
    parts: list[Part] = []

    def element(place: int) -> int:
        parts.append(decoded(text, place))
        return parts[-1].end

    return parts, _listed(text, at, "[]", element)


def members(
    text: str, at: int, read: Callable[[str, int], Part] | None = None
) -> tuple[dict[str, Part], int]:
    """Return the members of the object that starts at `at`, and its end; of two with one name, the last.

    `read` decodes the value of a key that begins at a place, where `decoded` is not what is wanted.

    Raises: as `decoded`.
    """
    found: dict[str, Part] = {}

    def member(place: int) -> int:
        if text[place : place + 1] != '"':
            raise ValueError("a name is missing")
        key = decoded(text, place)
        colon = after_space(text, key.end)
        if text[colon : colon + 1] != ":":
            raise ValueError("a colon is missing")
        start, name = after_space(text, colon + 1), str(key.value)
        found[name] = decoded(text, start) if read is None else read(name, start)
        return found[name].end

    return found, _listed(text, at, "{}", member)


def spliced(text: str, splices: Iterable[Splice]) -> str:
    """Apply `splices`, which do not overlap, to `text`."""
    pieces: list[str] = []
    place = 0
    for start, end, new in sorted(splices):
        pieces += (text[place:start], new)
        place = end
    return "".join((*pieces, text[place:]))


def _listed(text: str, at: int, brackets: str, item: Callable[[int], int]) -> int:
    """Read what stands between `brackets`: `item` gets each place and gives its end. The end of it all."""
    first, last = brackets
    if text[at : at + 1] != first:
        raise ValueError(f"{first} is missing")
    place = after_space(text, at + 1)
    if text[place : place + 1] == last:
        return place + 1
    while True:
        place = after_space(text, item(place))
        sign = text[place : place + 1]
        if sign == last:
            return place + 1
        if sign != ",":
            raise ValueError(f", or {last} is missing")
        place = after_space(text, place + 1)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """White space and escapes of a JSON text."""

    newline: str
    """Empty where everything stands on one line."""
    unit: str
    """Indentation per level."""
    comma: str
    """Between two values on one line."""
    colon: str
    ascii: bool
    """Whether characters beyond ASCII are escaped."""

    def written(self, value: JsonValue, level: int) -> str:
        """Write `value` at nesting `level`; the whole text has level 0."""
        separators = (",", self.colon) if self.newline else (self.comma, self.colon)
        indent = self.unit if self.newline else None
        text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=self.ascii)
        return text.replace("\n", self._line(level))

    def composed(self, members: Iterable[tuple[str, str]], level: int) -> str:
        """Write an object from keys and values that are JSON already."""
        line = self._line(level + 1)
        comma = f",{line}" if self.newline else self.comma
        inside = comma.join(f"{self.written(key, 0)}{self.colon}{value}" for key, value in members)
        return f"{{{line}{inside}{self._line(level)}}}"

    def enclosed(self, item: str, level: int) -> str:
        """Write an array at `level` with one item that is JSON already."""
        return f"[{self._line(level + 1)}{item}{self._line(level)}]"

    def between(self, level: int) -> str:
        """Return the separator between two items of an array at `level`."""
        return f",{self._line(level + 1)}" if self.newline else self.comma

    def _line(self, level: int) -> str:
        return f"{self.newline}{self.unit * level}" if self.newline else ""


def layout(text: str, at: int, level: int) -> Layout:
    """Detect the formatting of the non-empty object at `at`, at nesting `level` of `text`."""
    first = after_space(text, at + 1)
    key = decoded(text, first)
    colon = text[key.end : after_space(text, after_space(text, key.end) + 1)]
    before, newline, indent = text[at + 1 : first].rpartition("\n")
    return Layout(
        newline="\r\n" if before.endswith("\r") else newline,
        unit=indent[: len(indent) // (level + 1)],
        comma=", " if colon.endswith(" ") else ",",
        colon=colon,
        ascii=text.isascii() and "\\u" in text and _NEEDLESS.search(text) is not None,
    )
