"""Applies the hunks of a patch to a text; everything outside them stays unchanged, line endings included."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mcp_toolserver.errors import Conflict
from mcp_toolserver.text.patch.locate_hunks import Placed, Target
from mcp_toolserver.text.patch.model import Hunk, lines_of


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
    target = Target(lines_of(content))
    placed: list[Placed] = []
    for hunk in hunks:
        try:
            placed.append(target.place(hunk))
        except Conflict as error:
            raise Conflict(f"hunk {hunk.number} (line {hunk.where} of the patch): {error}") from None
    lines = _ended(list(_rewritten(target.lines, placed)))
    return Applied(
        content="".join(lines), notes=tuple(_notes(placed)), loose=any(one.loose for one in placed)
    )


def _notes(placed: Sequence[Placed]) -> Iterator[str]:
    for one in placed:
        if one.notes:
            yield f"hunk {one.hunk.number}: {'; '.join(one.notes)}"


def _rewritten(lines: Sequence[str], placed: Sequence[Placed]) -> Iterator[str]:
    last = 0
    for one in placed:
        yield from lines[last : one.start]
        last = one.start + sum(line.sign != "+" for line in one.lines)
        made = _made(lines, one)
        yield from made if one.exact else _with_last_ending(made, lines, last, one)
    yield from lines[last:]


def _made(lines: Sequence[str], placed: Placed) -> list[str]:
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
    is_crlf = near[0].endswith("\r\n") if near else False
    if near and not near[0].endswith("\n"):
        is_crlf = len(lines) > 1 and lines[-2].endswith("\r\n")
    elif not near:
        return text
    return text.removesuffix("\n").removesuffix("\r") + ("\r\n" if is_crlf else "\n")


def _with_last_ending(made: list[str], lines: Sequence[str], last: int, placed: Placed) -> list[str]:
    """End the file with a line feed or without: as the hunk says, or else as before."""
    if last < len(lines) or not made:
        return made
    says = any(not line.text.endswith("\n") for line in placed.lines)
    new = placed.hunk.new
    is_open = not new[-1].endswith("\n") if says and new else bool(lines) and not lines[-1].endswith("\n")
    *start, end = made
    bare = end.removesuffix("\n").removesuffix("\r")
    if is_open:
        return [*start, bare]
    return made if end.endswith("\n") else [*start, _like(f"{end}\n", lines, len(lines))]


def _ended(lines: list[str]) -> list[str]:
    """Add the line feed that a line lacks if it was the last of the file and no longer is."""
    ending = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    return [*(line if line.endswith("\n") else f"{line}{ending}" for line in lines[:-1]), *lines[-1:]]
