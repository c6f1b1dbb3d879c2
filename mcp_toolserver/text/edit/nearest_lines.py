"""Finds the lines of a file that are most similar to a text, by their rarest lines and words.

A message shows lines in JSON quotes, short, with what looks alike or cannot be seen in JSON's own escapes:
the quotes can be copied into a call as they are.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import islice

from mcp_toolserver.text.edit.unified_diff import common_start
from mcp_toolserver.text.lines.escape_invisible import is_hidden

LOOKALIKES = {
    **dict.fromkeys(map(ord, "‘’‚‛′ʼ"), "'"),
    **dict.fromkeys(map(ord, "“”„‟″"), '"'),
    **dict.fromkeys(map(ord, "‐‑‒–—―−"), "-"),
    **dict.fromkeys((0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000), " "),
    **dict.fromkeys((0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF), ""),
    ord("…"): "...",
}
"""Characters that people and models take for ASCII, with what they take them for."""

_SPELT_OUT = {character: f"\\u{character:04x}" for character in LOOKALIKES}

_CHARACTERS = 200
_LEAD = 80

_WORD = re.compile(r"\w{3,}")
_SOUGHT = 50
"""Lines, or words, of the wanted text that are looked for."""
_PLACES = 20
"""Places of one line or word that are compared."""
_WORDS_COMPARED = 4
_WORDS_READ = 20_000
"""Characters of the wanted text from which words are taken."""
_WINDOW = 80
"""Characters on either side of a word that are compared; keeps the comparison, which is quadratic, short."""
_MARGIN = 10
"""How much more of the file's line is compared: something may have been added to it."""
_ALIKE = 0.5
_MAX_SHOWN = 3
"""Maximum number of differing lines in a message."""


@dataclass(frozen=True, kw_only=True)
class Fragment:
    """The lines of a file at the position of a wanted text."""

    first: int
    """Lines of the file before them; negative when the wanted text would begin before the file."""
    lines: Sequence[str | None]
    """None where the file has no line."""

    def differences(self, wanted: Sequence[str], name: str) -> str:
        """Describe each of the first lines that differ in a sentence; `name` is what contains `wanted`."""
        last = len(wanted) - 1
        found = (
            _difference(self.first + index + 1, there, here, name)
            for index, (there, here) in enumerate(zip(self.lines, wanted, strict=True))
            if there is None or not _agrees(there, here, starts=index == 0, ends=index == last)
        )
        return " ".join(islice(found, _MAX_SHOWN))

    def alike(self, wanted: Sequence[str]) -> int:
        """Count the lines that are equal except for surrounding white space."""
        pairs = zip(self.lines, wanted, strict=True)
        return sum(there is not None and there.strip() == here.strip() for there, here in pairs)


def nearest(text: str, wanted: str, name: str) -> str | None:
    """Describe where the text most similar to `wanted` is, and how it differs; None if nothing is similar."""
    lines = wanted.split("\n")
    return _by_lines(text, lines, name) or _by_words(text, lines, wanted[:_WORDS_READ], name)


def fragment(text: str, place: int, above: int, count: int) -> Fragment:
    """Return `count` lines: `above` lines, the line that contains `place`, and those after it."""
    start = text.rfind("\n", 0, place) + 1
    number = text.count("\n", 0, start) - above
    while above and start:
        start, above = text.rfind("\n", 0, start - 1) + 1, above - 1
    found = text[start:].split("\n", count)[: count - above]
    return Fragment(first=number, lines=[*[None] * above, *found, *[None] * (count - above - len(found))])


def _difference(number: int, there: str | None, here: str, name: str) -> str:
    if there is None:
        return f"The file has no line there for {quoted(here, 0)}."
    place = _parting(there, here)
    return f"Line {number} of the file is {quoted(there, place)}, {name} has {quoted(here, place)}."


def _agrees(there: str, here: str, *, starts: bool, ends: bool) -> bool:
    """Whether a line holds its part of the wanted text, which may begin and end within a line."""
    if starts:
        return here in there if ends else there.endswith(here)
    return there.startswith(here) if ends else there == here


def _parting(there: str, here: str) -> int:
    same = common_start(there, here)
    word = _WORD.search(here)
    return same if same or not word else max(0, there.find(word[0]))


def _by_lines(text: str, lines: Sequence[str], name: str) -> str | None:
    telling = [index for index, line in enumerate(lines) if _WORD.search(line)]
    longest = sorted(telling, key=lambda index: -len(lines[index]))[:_SOUGHT]
    counts = {index: count for index in longest if (count := text.count(lines[index].strip()))}
    if not counts:
        return None
    rarest = min(counts, key=lambda index: counts[index])
    places = islice(_places(text, lines[rarest].strip()), _PLACES)
    found = (fragment(text, place, rarest, len(lines)) for place in places)
    best = max(found, key=lambda part: part.alike(lines))
    return (
        f"The nearest text begins on line {max(1, best.first + 1)}. {best.differences(lines, name)}".rstrip()
    )


def _by_words(text: str, lines: Sequence[str], wanted: str, name: str) -> str | None:
    words = sorted({match[0] for match in _WORD.finditer(wanted)}, key=len)[-_SOUGHT:]
    counts = {word: count for word in words if (count := text.count(word))}
    rarest = sorted(counts, key=lambda word: (counts[word], word))[:_WORDS_COMPARED]
    scored = [
        (_likeness(wanted, wanted.index(word), text, place), place, wanted.count("\n", 0, wanted.index(word)))
        for word in rarest
        for place in islice(_places(text, word), _PLACES)
    ]
    score, place, index = max(scored, default=(0.0, 0, 0))
    if score < _ALIKE:
        return None
    there, here = fragment(text, place, 0, 1).lines[0] or "", lines[index]
    parting = _parting(there, here)
    number = text.count("\n", 0, place) + 1
    return f"The nearest line is {number}, {quoted(there, parting)}; {name} has {quoted(here, parting)}."


def _places(text: str, wanted: str) -> Iterator[int]:
    place = text.find(wanted)
    while place >= 0:
        yield place
        place = text.find(wanted, place + len(wanted))


def _likeness(one: str, one_place: int, other: str, other_place: int) -> float:
    """Return the similarity of the lines around a word in two texts."""
    before, after = _around(one, one_place, _WINDOW, _WINDOW)
    other_sides = _around(other, other_place, len(before) + _MARGIN, len(after) + _MARGIN)
    return SequenceMatcher(None, before + after, "".join(other_sides), autojunk=False).ratio()


def _around(text: str, place: int, before: int, after: int) -> tuple[str, str]:
    """Return the text before and after `place` on the same line, up to a number of characters."""
    start, end = text[max(0, place - before) : place], text[place : place + after]
    return start[start.rfind("\n") + 1 :], end.split("\n", 1)[0]


def quoted(line: str, place: int) -> str:
    """Quote at most 200 characters of `line` around `place`, as JSON."""
    start = max(0, min(place - _LEAD, len(line) - _CHARACTERS))
    end = start + _CHARACTERS
    text = json.dumps(line[start:end], ensure_ascii=False).translate(_SPELT_OUT)
    spelt = "".join(json.dumps(one)[1:-1] if is_hidden(one) else one for one in text)
    return f"{'…' * (start > 0)}{spelt}{'…' * (end < len(line))}"
