"""Locates the values in a JSON text, so that one can be replaced and the rest stays unchanged."""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pydantic import JsonValue

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Part:
    """A value and its place."""

    start: int
    end: int
    value: JsonValue


@dataclass(frozen=True)
class Member:
    """A member of an object: its name and its value."""

    key: str
    start: int
    """Position of the key."""
    part: Part


@dataclass(frozen=True)
class Splice:
    """`new` in place of what lies from `start` to `end`."""

    start: int
    end: int
    new: str


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
    return parts, _listed(text, at, "[]", lambda place: _appended(parts, decoded(text, place)))


def members(text: str, at: int, read: Callable[[str, int], Part] | None = None) -> tuple[list[Member], int]:
    """Return the members of the object that starts at `at`, and its end.

    `read` decodes the value of a key that begins at a place, where `decoded` is not what is wanted.

    Raises: as `decoded`.
    """
    found: list[Member] = []

    def member(place: int) -> int:
        if text[place : place + 1] != '"':
            raise ValueError("a name is missing")
        key = decoded(text, place)
        colon = after_space(text, key.end)
        if text[colon : colon + 1] != ":":
            raise ValueError("a colon is missing")
        start = after_space(text, colon + 1)
        name = str(key.value)
        part = decoded(text, start) if read is None else read(name, start)
        found.append(Member(name, place, part))
        return part.end

    return found, _listed(text, at, "{}", member)


def spliced(text: str, splices: Iterable[Splice]) -> str:
    """Apply `splices`, which do not overlap, to `text`."""
    pieces: list[str] = []
    place = 0
    for splice in sorted(splices, key=lambda splice: splice.start):
        pieces += (text[place : splice.start], splice.new)
        place = splice.end
    return "".join((*pieces, text[place:]))


def _appended(parts: list[Part], part: Part) -> int:
    parts.append(part)
    return part.end


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
