"""Exact replacement in a text: once, or everywhere; one edit or several, all or none.

The rules, in order:
1. `old_string` is not empty and differs from `new_string`.
2. It occurs exactly once, or `replace_all` is set. A line break in it matches either line ending.
3. Nothing outside the match changes, not even a line ending.
4. Line breaks in `new_string` are those of the text it replaces or, failing that, of the line it comes to
   stand on; a `new_string` that holds a carriage return is taken as it is.
5. Each edit works on the result of the one before.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import islice

from mcp_toolserver.errors import Conflict, InvalidInput
from mcp_toolserver.text.edit.matches import (
    LINES_NAMED,
    Occurrences,
    distinct_lines,
    explain,
    folded,
    named_lines,
    occurrences,
    places,
    where,
)

MAX_CHARACTERS = 10 << 20
"""The longest text that edits may make; a few replacements could otherwise fill the memory."""

_FOLLOWED = 10_000
"""Replacements of one edit that are made one by one; more are made at the speed of `str.replace`."""


@dataclass(frozen=True)
class Edit:
    """One replacement."""

    old_string: str
    new_string: str
    replace_all: bool = False


@dataclass(frozen=True, kw_only=True)
class Edited:
    """A text after its edits."""

    content: str
    count: int
    """Replacements made."""
    lines: tuple[int, ...]
    """The first lines of `content` on which a replacement begins; none where there are very many."""
    more: bool
    """Whether `lines` omits some replacements."""
    flexible: bool
    """Whether a match differs from its `old_string` in line endings."""

    @property
    def named_lines(self) -> str:
        """`lines` as words."""
        return named_lines(self.lines, more=self.more)


def apply(content: str, edits: Sequence[Edit]) -> Edited:
    """Make all edits, in order.

    Raises:
        InvalidInput: an edit that could never be made.
        Conflict: an `old_string` that does not occur, or more than once; the text says where and what to do.
    """
    names = [f"edits[{index}]." for index in range(len(edits))] if len(edits) > 1 else [""]
    for name, edit in zip(names, edits, strict=True):
        if not edit.old_string:
            raise InvalidInput(
                f"{name}old_string is empty. Give the text to replace; to write a whole file use write_file."
            )
        if edit.old_string == edit.new_string:
            raise InvalidInput(
                f"{name}old_string and {name}new_string are equal. Nothing would change; send the new text."
            )
    text, count, marks, flexible = content, 0, list[int](), False
    for name, edit in zip(names, edits, strict=True):
        found = _found(name, edit, text, content)
        flexible |= not found.by_bytes and found.content.count(edit.old_string) < found.count
        count += found.count
        if found.count > _FOLLOWED:
            text, marks = _replaced(name, found, edit), []
        else:
            text, marks = _rewritten(text, _splices(found, edit), marks)
    lines = distinct_lines(text, marks)
    return Edited(content=text, count=count, lines=lines, more=count > len(marks), flexible=flexible)


def _found(name: str, edit: Edit, text: str, original: str) -> Occurrences:
    found = occurrences(text, edit.old_string)
    if found.wanted not in found.text:
        before = occurrences(original, edit.old_string)
        if before.wanted in before.text:
            why = "It was in the file, but an edit before it in this call changed it. Join the two edits."
        else:
            why = explain(text, edit.old_string, edit.new_string)
        raise Conflict(f"{name}old_string was not found. {why} The file is unchanged.")
    first = len(list(islice(places(found.text, found.wanted), LINES_NAMED + 1)))
    if first > 1 and not edit.replace_all:
        places_named = where(found.text, found.wanted)
        raise Conflict(
            f"{name}old_string occurs {max(found.count, first)} times ({places_named}). Add surrounding "
            "lines to it until it occurs once, or set replace_all to change every one. The file is unchanged."
        )
    size = len(text) + found.count * (len(edit.new_string) - len(found.wanted))
    if size > MAX_CHARACTERS:
        raise InvalidInput(
            f"{name}new_string would make the file {size:,} characters long; {MAX_CHARACTERS:,} is the most. "
            "Use a shorter one."
        )
    return found


def _new(found: Occurrences, edit: Edit) -> tuple[str, bool]:
    """Return the new text, and whether its line breaks take the form of those in the file."""
    sent_by_windows = not found.by_bytes and "\r\n" in edit.old_string
    new = folded(edit.new_string) if sent_by_windows else edit.new_string
    meant = "\r" in new or (found.by_bytes and "\r" in edit.old_string)
    return new, "\n" in new and not meant


def _replaced(name: str, found: Occurrences, edit: Edit) -> str:
    """Replace all of many occurrences at once.

    Raises:
        InvalidInput: line endings are mixed, so that every place has to be looked at.
    """
    new, adapts = _new(found, edit)
    if "\r\n" not in found.content or (found.by_bytes and not adapts):
        return found.text.replace(found.wanted, new)
    if "\r" not in new and found.content.count("\r\n") == found.content.count("\n"):
        return folded(found.content).replace(found.wanted, new).replace("\n", "\r\n")
    raise InvalidInput(
        f"{name}old_string occurs {found.count:,} times in a file with mixed line endings; {_FOLLOWED:,} is "
        "the most that can be replaced there. Use a longer old_string, or make the line endings equal first."
    )


def _splices(found: Occurrences, edit: Edit) -> Iterator[tuple[int, int, str]]:
    new, adapts = _new(found, edit)
    for start, end, ending in _endings(found.content, found.spans()):
        text = _with_breaks(new, found.content[start:end], ending) if adapts else new
        yield start, end, text


def _endings(content: str, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, str]]:
    """Yield each span with the ending of the line on which it ends; of the line before, if that one has none.

    The search for the next line break never goes over the same text twice.
    """
    following = -1
    for start, end in spans:
        if following < end:
            following = content.find("\n", end)
            following = len(content) if following < 0 else following
        place = following if following < len(content) else content.rfind("\n")
        yield start, end, "\r\n" if place > 0 and content[place - 1] == "\r" else "\n"


def _with_breaks(new: str, replaced: str, ending: str) -> str:
    """Return `new` with the line breaks of the text it replaces, in order; the last one is repeated."""
    breaks: list[str] = re.findall("\r?\n", replaced) or [ending]
    first, *rest = new.split("\n")
    last = len(breaks) - 1
    return first + "".join(breaks[min(index, last)] + line for index, line in enumerate(rest))


def _rewritten(text: str, splices: Iterable[tuple[int, int, str]], marks: list[int]) -> tuple[str, list[int]]:
    """Return `text` with all splices applied, and the new positions of its marks and first new pieces."""
    result, last = StringIO(newline=""), 0
    waiting, moved = deque(marks), list[int]()
    for start, end, new in splices:
        while waiting and waiting[0] < end:
            moved.append(result.tell() + min(waiting.popleft(), start) - last)
        result.write(text[last:start])
        if len(moved) + len(waiting) < LINES_NAMED:
            moved.append(result.tell())
        result.write(new)
        last = end
    moved += [result.tell() + mark - last for mark in waiting]
    result.write(text[last:])
    return result.getvalue(), moved
