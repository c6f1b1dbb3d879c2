"""Explains why `old_string` was not found, with the closest match, so that the model can retry.

Checks common model mistakes first, then differences that are hard to see, then the nearest lines. Every step
is linear in the size of the file.
"""

import html
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import islice

from mcp_toolserver.text.edit.nearest_lines import LOOKALIKES, fragment, nearest
from mcp_toolserver.text.edit.occurrences import Occurrences, folded, named_lines
from mcp_toolserver.text.lines.escape_invisible import escapes, unescape

_LINES_NAMED = 10
_MOST_ESCAPES = 5
_FOLDED_CHARACTERS = 2_000_000
"""Longer texts are not searched for differences that are hard to see: that takes many times their size."""
_TELLING_CHARACTERS = 12
"""A shorter new text may well stand elsewhere in the file by chance."""
_NOTHING_LIKE_IT = (
    "Nothing in the file is like it. Read the file again, or look for the text with grep_search."
)


def explain(
    content: str, old: str, new: str, *, names: tuple[str, str] = ("old_string", "new_string")
) -> str:
    """Explain why `old` is not in `content`, where it almost is, and what to send instead.

    `names` are those of the old and the new text in the message; the second one starts a sentence.
    """
    if not content.strip():
        return "There is no text in the file. Use write_file to give it content."
    text, wanted = folded(content), folded(old)
    return (
        _slip(text, wanted, names[0])
        or _shown_escapes(text, wanted)
        or _lone_returns(text, wanted)
        or _hardly_visible(text, wanted, names[0])
        or f"{_made_before(text, folded(new), names[1])}{nearest(text, wanted, names[0]) or _NOTHING_LIKE_IT}"
    )


def _slip(text: str, wanted: str, name: str) -> str | None:
    for undo, message in _SLIPS.items():
        meant = undo(wanted)
        if meant != wanted and meant.strip() and meant in text:
            return message.format(where=_where(text, meant), name=name)
    return None


def _where(text: str, wanted: str) -> str:
    found = Occurrences(content=text, text=text, wanted=wanted, by_bytes=True)
    return named_lines(found.lines(_LINES_NAMED), more=len(found.first(_LINES_NAMED + 1)) > _LINES_NAMED)


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
        f"{_where(text, meant)}, has the characters themselves. Send them in JSON escapes: "
        f"{', '.join(islice(named, _MOST_ESCAPES))}."
    )


def _lone_returns(text: str, wanted: str) -> str | None:
    lines = text.replace("\r", "\n")
    wanted_lines = wanted.replace("\r", "\n")
    if "\r" not in text + wanted or wanted_lines not in lines:
        return None
    return (
        f"It is on {_where(lines, wanted_lines)} but for carriage returns without a line feed. "
        'Send "\\r" exactly where the file has it.'
    )


_FOLDS: Mapping[str, Callable[[str], str]] = {
    "typographic characters (curly quotes, dashes, special spaces)": lambda t: t.translate(LOOKALIKES),
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
            part = fragment(text, sum(map(len, before)) + number, 0, len(lines))
            differences = _needed([*_FOLDS][:count], "\n".join(line or "" for line in part.lines), wanted)
            where = _where(folded_text, folded_wanted)
            return (
                f"It is on {where} but for {differences}. {part.differences(lines, name)} "
                "Send the text exactly as the file has it."
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
    return f"{name} is there already, on {_where(text, new)}: the edit may have been made before. "
