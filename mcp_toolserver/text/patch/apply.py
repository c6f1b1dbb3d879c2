"""Applies the hunks of a patch to a text; everything outside them stays unchanged, line endings included.

A hunk belongs where its old lines are. They are looked for in this order, and the first find counts:

    exactly; with other line endings; with other white space at line ends;
    then the same with one, then two lines of context less at either end

and each time first where the patch says, then anywhere after the hunk before it. There they must be in one
place only, unless lines named before the hunk say which.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

from mcp_toolserver.errors import Conflict
from mcp_toolserver.text.edit.matches import LINES_NAMED, explain, folded, named_lines, quoted
from mcp_toolserver.text.patch.model import Hunk, Line, lines_of

_FUZZ = 2
"""Lines of context that may be left out at either end."""

_OTHER_ENDINGS = "the file has other line endings and keeps them"


@dataclass(frozen=True, kw_only=True)
class Applied:
    """A text after its hunks."""

    content: str
    notes: tuple[str, ...]
    """A sentence for each hunk that was not found exactly where and as it says."""
    loose: bool
    """Whether a hunk may be in the wrong place."""


def apply_hunks(content: str, hunks: Sequence[Hunk]) -> Applied:
    """Apply all hunks, in order.

    Lines of context stay as the file has them. Added lines are taken as they are where the hunk was found
    exactly, and otherwise get the line endings around them.

    Raises:
        Conflict: a hunk has no place, or several.
    """
    target = _Target(lines_of(content))
    placed: list[_Placed] = []
    for hunk in hunks:
        try:
            placed.append(target.place(hunk))
        except Conflict as error:
            raise Conflict(f"hunk {hunk.number} (line {hunk.where} of the patch): {error}") from None
    notes = [f"hunk {one.hunk.number}: {'; '.join(one.notes)}" for one in placed if one.notes]
    loose = any(note != _OTHER_ENDINGS for one in placed for note in one.notes)
    lines = _ended(list(_rewritten(target.lines, placed)))
    return Applied(content="".join(lines), notes=tuple(notes), loose=loose)


def _rewritten(lines: Sequence[str], placed: "Sequence[_Placed]") -> Iterator[str]:
    last = 0
    for one in placed:
        yield from lines[last : one.start]
        last = one.start + sum(line.sign != "+" for line in one.lines)
        made = _made(lines, one)
        yield from made if one.exact else _with_last_ending(made, lines, last, one)
    yield from lines[last:]


def _made(lines: Sequence[str], placed: "_Placed") -> list[str]:
    """Return the lines that replace those of the hunk."""
    made: list[str] = []
    place = placed.start
    for line in placed.lines:
        if line.sign == "+":
            made.append(line.text if placed.exact else _like(line.text, lines, place))
            continue
        if line.sign == " ":
            made.append(lines[place])
        place += 1
    return made


def _like(text: str, lines: Sequence[str], place: int) -> str:
    """Return `text` with the line ending that the file has before `place`, or else after it."""
    near = lines[place - 1 : place] or lines[place : place + 1]
    if not near:
        return text
    ended = near if near[0].endswith("\n") else lines[-2:-1]
    is_crlf = any(line.endswith("\r\n") for line in ended)
    return _without_ending(text) + ("\r\n" if is_crlf else "\n")


def _with_last_ending(made: list[str], lines: Sequence[str], last: int, placed: "_Placed") -> list[str]:
    """End the file with a line feed or without: as the hunk says, or else as before."""
    if last < len(lines) or not made:
        return made
    says = any(not line.text.endswith("\n") for line in placed.lines)
    new = placed.hunk.new
    is_open = not new[-1].endswith("\n") if says and new else bool(lines) and not lines[-1].endswith("\n")
    *start, end = made
    if is_open:
        return [*start, _without_ending(end)]
    return made if end.endswith("\n") else [*start, _like(f"{end}\n", lines, len(lines))]


def _ended(lines: list[str]) -> list[str]:
    """Add the line feed that a line lacks if it was the last of the file and no longer is."""
    ending = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    return [*(line if line.endswith("\n") else f"{line}{ending}" for line in lines[:-1]), *lines[-1:]]


@dataclass(frozen=True, kw_only=True)
class _Placed:
    """A hunk with the place it belongs to."""

    hunk: Hunk
    start: int
    """Lines of the file before it."""
    lines: tuple[Line, ...]
    """The lines of the hunk that were located, and those to insert."""
    exact: bool
    """Whether the lines of the file equal those of the patch."""
    notes: tuple[str, ...]
    """How it was found, if not by an exact match at its position."""


def _without_ending(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


_FOLDS: Mapping[str, Callable[[str], str]] = {
    "": lambda line: line,
    _OTHER_ENDINGS: lambda line: f"{_without_ending(line)}\n",
    "white space at line ends differs": lambda line: f"{line.rstrip()}\n",
}
"""By what is said of it, what ignores a kind of difference between lines."""


class _Folded:
    """The lines of a file without a kind of difference, joined into one text for fast search."""

    def __init__(self, lines: Sequence[str], difference: str) -> None:
        self._fold = _FOLDS[difference]
        folded = [*map(self._fold, lines)] if difference else lines
        self._text = "".join(folded)
        self._starts = [0, *accumulate(map(len, folded))]

    def is_at(self, old: Sequence[str], place: int) -> bool:
        """Whether the lines are exactly there."""
        wanted, starts = "".join(map(self._fold, old)), self._starts[place : place + 1]
        return any(self._text.startswith(wanted, at) and self._is_whole(at, wanted) for at in starts)

    def places(self, old: Sequence[str], floor: int) -> Iterator[int]:
        """Yield the indexes of the lines, from `floor` on, where `old` begins."""
        wanted = "".join(map(self._fold, old))
        start = self._text.find(wanted, self._starts[floor])
        while start >= 0:
            index = bisect_left(self._starts, start)
            if self._starts[index] == start and self._is_whole(start, wanted):
                yield index
            start = self._text.find(wanted, start + 1)

    def _is_whole(self, start: int, wanted: str) -> bool:
        """Check that a match without a final line feed ends with the file."""
        return wanted.endswith("\n") or start + len(wanted) == len(self._text)


class _Target:
    """The lines of a file, and the position after the last placed hunk."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self._folded: dict[str, _Folded] = {}
        self._floor = 0
        """Hunks come in the order of the file: the next one starts here or later."""
        self._drift = 0
        """Offset of the previous hunk from the position in the patch."""

    def place(self, hunk: Hunk) -> _Placed:
        """Find the next hunk.

        Raises:
            Conflict: it is nowhere, or in several places; the text says where and what is different.
        """
        floor, is_chosen = self._after_anchors(hunk)
        placed = self._inserted(hunk, floor) if not hunk.old else self._found(hunk, floor, is_chosen)
        self._floor = placed.start + sum(line.sign != "+" for line in placed.lines)
        if hunk.start is not None:
            self._drift = placed.start - hunk.start - _leading(hunk.lines) + _leading(placed.lines)
        return placed

    def _fold(self, difference: str) -> _Folded:
        if difference not in self._folded:
            self._folded[difference] = _Folded(self.lines, difference)
        return self._folded[difference]

    def _after_anchors(self, hunk: Hunk) -> tuple[int, bool]:
        """Return the first line after the anchors of the hunk, and whether each anchor is unambiguous."""
        floor, is_clear = self._floor, True
        for anchor in hunk.anchors:
            rest = enumerate(islice(self.lines, floor, None), floor)
            wanted = anchor.strip()
            places = list(islice((index for index, line in rest if line.strip() == wanted), 2))
            if not places:
                raise Conflict(
                    f"there is no line {quoted(anchor, 0)}, which `@@` names, after line {floor}. "
                    "Name a line that is there, whole, or leave it out."
                )
            floor, is_clear = places[0] + 1, is_clear and len(places) == 1
        return floor, bool(hunk.anchors) and is_clear

    def _inserted(self, hunk: Hunk, floor: int) -> _Placed:
        """Place a hunk that only adds lines: where it says, else after its anchors, else at the end."""
        start = len(self.lines)
        if hunk.start is not None:
            start = hunk.start + self._drift
            if not floor <= start <= len(self.lines):
                raise Conflict(
                    f"it adds lines after line {hunk.start}, but the file has {len(self.lines)} lines. "
                    "Give lines of context."
                )
        elif hunk.anchors and not hunk.at_end:
            start = floor
        return _Placed(
            hunk=hunk, start=start, lines=hunk.lines, exact=hunk.start is not None, notes=_header_notes(hunk)
        )

    def _found(self, hunk: Hunk, floor: int, is_chosen: bool) -> _Placed:
        for lines in _shorter_and_shorter(hunk):
            old = [line.text for line in lines if line.sign != "+"]
            dropped = len(hunk.lines) - len(lines)
            first = _leading(hunk.lines) - _leading(lines)
            for difference in _FOLDS:
                start = self._start(hunk, self._fold(difference), old, first, (floor, is_chosen))
                if start is None:
                    continue
                return _Placed(
                    hunk=hunk,
                    start=start,
                    lines=tuple(lines),
                    exact=not difference,
                    notes=tuple(self._notes(hunk, start - first, difference, dropped)),
                )
        raise Conflict(self._why_not(hunk, floor))

    def _start(
        self, hunk: Hunk, folded: _Folded, old: Sequence[str], first: int, after: tuple[int, bool]
    ) -> int | None:
        floor, is_chosen = after
        expected = len(self.lines) - len(old) if hunk.at_end else -1
        if hunk.start is not None:
            expected = hunk.start + self._drift + first
        if expected >= floor and folded.is_at(old, expected):
            return expected
        places = list(islice(folded.places(old, floor), LINES_NAMED + 1))
        if len(places) > 1 and not is_chosen:
            numbers = tuple(place + 1 for place in places[:LINES_NAMED])
            where = named_lines(numbers, more=len(places) > LINES_NAMED)
            raise Conflict(
                f"its old lines are in the file several times ({where}). Add lines of context, or name a "
                "line before them after `@@`."
            )
        return places[0] if places else None

    def _notes(self, hunk: Hunk, start: int, difference: str, dropped: int) -> Iterator[str]:
        if hunk.start is not None and start != hunk.start:
            yield f"found at line {start + 1} instead of {hunk.start + 1}"
        if hunk.at_end and start + len(hunk.old) != len(self.lines):
            yield "not at the end of the file"
        if difference:
            yield difference
        if dropped:
            yield f"{dropped} line{'s' * (dropped > 1)} of context did not match and were left out"
        yield from _header_notes(hunk)

    def _why_not(self, hunk: Hunk, floor: int) -> str:
        for difference in _FOLDS:
            before = next(self._fold(difference).places(hunk.old, 0), None)
            if before is not None:
                place = "the hunk before it" if not hunk.anchors else "the hunk or `@@` line before it"
                return (
                    f"its old lines are on line {before + 1}, but {place} comes later, on line {floor}. "
                    "Put the hunks in the order of the file."
                )
        text, old, new = (folded("".join(lines)) for lines in (self.lines, hunk.old, hunk.new))
        old = old.removesuffix("\n")
        names = ("the hunk", "What the hunk makes")
        why = _part_of_lines(text, old) or explain(text, old, new.removesuffix("\n"), names=names)
        return f"its old lines are not in the file. {why}"


def _part_of_lines(text: str, old: str) -> str | None:
    """Explain that the old lines are in the file only as parts of lines; None if they are not."""
    place = text.find(old)
    if place < 0:
        return None
    lines = old.split("\n")
    is_first = place > 0 and text[place - 1] != "\n"
    there = place if is_first else place + len(old)
    start, end = text.rfind("\n", 0, there) + 1, text.find("\n", there)
    line, said = text[start : end if end >= 0 else len(text)], lines[0 if is_first else -1]
    return (
        f"It is on line {text.count(chr(10), 0, place) + 1}, but not as whole lines: line "
        f"{text.count(chr(10), 0, there) + 1} of the file is {quoted(line, there - start)}, the hunk has "
        f"{quoted(said, 0)}. Send whole lines."
    )


def _header_notes(hunk: Hunk) -> tuple[str, ...]:
    return ("the numbers in its header do not fit its lines",) if hunk.miscounted else ()


def _shorter_and_shorter(hunk: Hunk) -> Iterator[Sequence[Line]]:
    """Yield the lines of the hunk, first whole, then with less and less context."""
    lead, trail = _leading(hunk.lines), _leading(hunk.lines[::-1])
    seen = 0
    for fuzz in range(_FUZZ + 1):
        first, last = min(fuzz, lead), min(fuzz, trail)
        lines = hunk.lines[first : len(hunk.lines) - last]
        says_enough = any(line.sign != "+" and line.text.strip() for line in lines)
        if fuzz == 0 or (first + last > seen and says_enough):
            yield lines
        seen = first + last


def _leading(lines: Sequence[Line]) -> int:
    """Count the lines of context at the start."""
    return next((index for index, line in enumerate(lines) if line.sign != " "), len(lines))
