"""Finds the places of a text in another, ignoring the kind of line endings, as models cannot see a carriage
return; and explains why it is not there, with the closest match, so that the model can retry.

Checks common model mistakes first, then differences that are hard to see, then the nearest lines: those with
the rarest lines and words. Every step is linear in the size of the file.

A message shows lines in JSON quotes, short, with what looks alike or cannot be seen in JSON's own escapes:
the quotes can be copied into a call as they are.
"""

import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import reduce
from itertools import islice

from mcp_toolserver.text.edit.unified_diff import common_start
from mcp_toolserver.text.lines.escape_invisible import escapes, is_hidden, unescape

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


_MOST_ESCAPES = 5
_FOLDED_CHARACTERS = 2_000_000
"""Longer texts are not searched for differences that are hard to see: that takes many times their size."""
_TELLING_CHARACTERS = 12
"""A shorter new text may well stand elsewhere in the file by chance."""
_NOTHING_LIKE_IT = (
    "Nothing in the file is like it. Read the file again, or look for the text with grep_search."
)

_LOOKALIKES = {
    **dict.fromkeys(map(ord, "‘’‚‛′ʼ"), "'"),
    **dict.fromkeys(map(ord, "“”„‟″"), '"'),
    **dict.fromkeys(map(ord, "‐‑‒–—―−"), "-"),
    **dict.fromkeys((0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000), " "),
    **dict.fromkeys((0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF), ""),
    ord("…"): "...",
}
"""Characters that people and models take for ASCII, with what they take them for."""

_SPELT_OUT = {character: f"\\u{character:04x}" for character in _LOOKALIKES}

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


def explain(
    content: str, old: str, new: str, *, names: tuple[str, str] = ("old_string", "new_string")
) -> str:
    """Explain why `old` is not in `content`, where it almost is, and what to send instead.

    `names` are those of the old and the new text in the message; the second one starts a sentence.
    """
    if not content.strip():
        return "There is no text in the file. Use write_file to give it content."
    text, wanted = folded(content), folded(old)
    lines = wanted.split("\n")
    return (
        _slip(text, wanted, names[0])
        or _shown_escapes(text, wanted)
        or _lone_returns(text, wanted)
        or _hardly_visible(text, wanted, names[0])
        or _made_before(text, folded(new), names[1])
        + (
            _by_lines(text, lines, names[0])
            or _by_words(text, lines, wanted[:_WORDS_READ], names[0])
            or _NOTHING_LIKE_IT
        )
    )


def _slip(text: str, wanted: str, name: str) -> str | None:
    for undo, message in _SLIPS.items():
        meant = undo(wanted)
        if meant != wanted and meant.strip() and meant in text:
            return message.format(where=where(text, meant), name=name)
    return None


def _without_numbers(text: str) -> str:
    lines = text.split("\n")
    numbered = re.compile(r" *\d+(?:\t|→|:|\| )")
    if all(numbered.match(line) or not line.strip() for line in lines):
        return "\n".join(numbered.sub("", line, count=1) for line in lines)
    return text


def _unescaped(text: str) -> str:
    meanings = {"n": "\n", "t": "\t", "r": ""}
    return re.sub(r"\\([nrt\"'\\])", lambda escape: meanings.get(escape[1], escape[1]), text)


def _escaped(text: str) -> str:
    return text.replace("\n", "\\n").replace("\t", "\\t")


_ESCAPES_IN_FILE = (
    "It is on {where} with backslash escapes: the file has a backslash and a letter where {name} has a "
    "line break, tab or quote. Send the backslashes themselves (in JSON, two for each)."
)

_SLIPS: Mapping[Callable[[str], str], str] = {
    _without_numbers: (
        "It holds the line numbers that read_file shows; they are not in the file. Without them it is on "
        "{where}: send the text alone."
    ),
    _unescaped: (
        "It holds backslash escapes (such as \\n) where the file, on {where}, has the characters themselves. "
        "Send real line breaks, tabs and quotes."
    ),
    _escaped: _ESCAPES_IN_FILE,
    lambda text: _escaped(text.replace("\\", "\\\\").replace('"', '\\"')): _ESCAPES_IN_FILE,
    html.unescape: (
        "It holds HTML entities (such as &lt;) where the file, on {where}, has the characters themselves. "
        "Send the characters."
    ),
    lambda text: text.strip("\n"): (
        "Without the line breaks at its start and end it is on {where}. Send it without them."
    ),
}
"""What undoes a form in which text is sent by mistake, and what to say then: `{name}` is the old text."""


def _shown_escapes(text: str, wanted: str) -> str | None:
    """Explain that `wanted` has the escapes of results where the file has the characters; None otherwise."""
    meant = unescape(wanted)
    if meant == wanted or meant not in text:
        return None
    named = (f"{shown} as {json.dumps(character)[1:-1]}" for shown, character in escapes(wanted).items())
    return (
        "It holds escapes by which results show characters that cannot be seen; the file, on "
        f"{where(text, meant)}, has the characters themselves. Send them in JSON escapes: "
        f"{', '.join(islice(named, _MOST_ESCAPES))}."
    )


def _lone_returns(text: str, wanted: str) -> str | None:
    lines = text.replace("\r", "\n")
    wanted_lines = wanted.replace("\r", "\n")
    if "\r" not in text + wanted or wanted_lines not in lines:
        return None
    return (
        f"It is on {where(lines, wanted_lines)} but for carriage returns without a line feed. "
        'Send "\\r" exactly where the file has it.'
    )


_FOLDS: Mapping[str, Callable[[str], str]] = {
    "typographic characters (curly quotes, dashes, special spaces)": lambda t: t.translate(_LOOKALIKES),
    "white space at the end of lines": lambda t: re.sub(r"(?<![ \t])[ \t]+(?=\n|\Z)", "", t),
    "indentation": lambda t: re.sub(r"(?m)^[ \t]+", "", t),
    "spaces or tabs within lines": lambda t: re.sub(r"[ \t]+", " ", t),
    "upper and lower case": str.casefold,
}
"""By name of a difference what makes texts alike that differ only in it; the number of lines stays."""


def _hardly_visible(text: str, wanted: str, name: str) -> str | None:
    if len(text) > _FOLDED_CHARACTERS:
        return None
    folded_text, folded_wanted = text, wanted
    for count, fold in enumerate(_FOLDS.values(), 1):
        folded_text, folded_wanted = fold(folded_text), fold(folded_wanted)
        if not folded_wanted.strip():
            return None
        place = folded_text.find(folded_wanted)
        if place >= 0:
            lines = wanted.split("\n")
            before = text.split("\n", number := folded_text.count("\n", 0, place))[:number]
            part = _fragment(text, sum(map(len, before)) + number, 0, len(lines))
            differences = _needed([*_FOLDS][:count], "\n".join(line or "" for line in part.lines), wanted)
            return (
                f"It is on {where(folded_text, folded_wanted)} but for {differences}. "
                f"{part.differences(lines, name)} Send the text exactly as the file has it."
            )
    return None


def _needed(folds: Sequence[str], part: str, wanted: str) -> str:
    """Return the names of the folds that are needed to make the part and the wanted text equal."""

    def alike_without(name: str) -> bool:
        others = [_FOLDS[other] for other in folds if other != name]
        one, two = (reduce(lambda text, change: change(text), others, text) for text in (part, wanted))
        return two in one

    *names, last = (name for name in folds if not alike_without(name))
    return f"{', '.join(names)} and {last}" if names else last


def _made_before(text: str, new: str, name: str) -> str:
    if len(new.strip()) < _TELLING_CHARACTERS or text.count(new) != 1:
        return ""
    return f"{name} is there already, on {where(text, new)}: the edit may have been made before. "


@dataclass(frozen=True, kw_only=True)
class _Fragment:
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


def _fragment(text: str, place: int, above: int, count: int) -> _Fragment:
    """Return `count` lines: `above` lines, the line that contains `place`, and those after it."""
    start = text.rfind("\n", 0, place) + 1
    number = text.count("\n", 0, start) - above
    while above and start:
        start, above = text.rfind("\n", 0, start - 1) + 1, above - 1
    found = text[start:].split("\n", count)[: count - above]
    return _Fragment(first=number, lines=[*[None] * above, *found, *[None] * (count - above - len(found))])


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
    line = lines[rarest].strip()
    found = (
        _fragment(text, place, rarest, len(lines)) for place in islice(places(text, line, len(line)), _PLACES)
    )
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
        for place in islice(places(text, word, len(word)), _PLACES)
    ]
    score, place, index = max(scored, default=(0.0, 0, 0))
    if score < _ALIKE:
        return None
    there, here = _fragment(text, place, 0, 1).lines[0] or "", lines[index]
    parting = _parting(there, here)
    number = text.count("\n", 0, place) + 1
    return f"The nearest line is {number}, {quoted(there, parting)}; {name} has {quoted(here, parting)}."


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
