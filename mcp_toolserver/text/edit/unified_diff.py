"""Computes a unified diff of bounded size, in bounded time."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mcp_toolserver.text.edit.common_prefix import common_end, common_start
from mcp_toolserver.text.edit.line_diff import Change, changes
from mcp_toolserver.text.lines.truncate import head_bytes

_CONTEXT = 3
_LINES = 300_000
"""Old and new lines, from the first difference to the last, beyond which a diff only counts them."""
_LINE_CHARACTERS = 1_000
_LEAD_CHARACTERS = 200
"""How much of a shortened line is shown before the place where it differs."""
_NOTE_BYTES = 160
"""Room for the lines that say what is not shown."""
_GAP = "[…]"


@dataclass(frozen=True, kw_only=True)
class _Part:
    """The lines of two texts in which they differ, with context."""

    first: int
    """Lines before it, the same in both."""
    old: Sequence[str]
    new: Sequence[str]
    """Both empty when they are too many to be shown."""
    changes: Sequence[Change]
    """Counted from the start of the part."""


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One line of a diff."""

    text: str
    changed: bool = False
    shortened: bool = False

    @property
    def size(self) -> int:
        return len(self.text.encode(errors="surrogatepass"))


def unified(before: str, after: str, path: str, *, to: str | None = None, limit: int = 20_000) -> str:
    """Return a unified diff, as of `git diff`, of at most `limit` UTF-8 bytes; "" for equal texts.

    `to` is where the new text lies, if elsewhere. Lines end at "\\n" only. Lines over 1,000 characters are
    shortened around the place where they differ, which the last line says. A diff that is too long is cut in
    the middle, where a line says how many changed lines are left out.
    """
    if before == after:
        return ""
    part = _part(before, after)
    start, end = _cut(part, path, path if to is None else to, limit)
    missing = sum(change.size for change in part.changes) - sum(row.changed for row in (*start, *end))
    texts = [row.text for row in start]
    texts += [f"[{missing} more changed lines are left out here]\n"] * (missing > 0)
    texts += [row.text for row in end]
    if any(row.shortened for row in (*start, *end)):
        texts.append(f"[lines over {_LINE_CHARACTERS} characters are shortened at {_GAP}]\n")
    return head_bytes("".join(texts), limit)


def _cut(part: _Part, path: str, to: str, limit: int) -> tuple[list[_Row], list[_Row]]:
    """Return the first rows and, if these are not all, the last ones, with room for notes in `limit`."""
    rows, whole = _fitting(_rows(part, path, to), limit)
    if whole and not any(row.shortened for row in rows):
        return rows, []
    room = limit - _NOTE_BYTES
    rows, whole = _fitting(rows, room) if whole else (rows, False)
    if whole:
        return rows, []
    start, _ = _fitting(rows, room - room // 4)
    end, _ = _fitting(_rows_backwards(part), room - sum(row.size for row in start))
    return start, end[::-1]


def _part(before: str, after: str) -> _Part:
    """Return the lines from the first to the last difference; the rest of a file is not split into lines."""
    start = common_start(before, after)
    tail = common_end(before, after, limit=min(len(before), len(after)) - start)
    start = _context_start(before, start)
    end = _context_end(before, len(before) - tail)
    removed, added = before[start:end], after[start : len(after) - (len(before) - end)]
    first = before.count("\n", 0, start)
    old_count, new_count = _count(removed), _count(added)
    if old_count + new_count > _LINES:
        return _Part(first=first, old=(), new=(), changes=(Change(0, old_count, 0, new_count),))
    old, new = _lines(removed), _lines(added)
    return _Part(first=first, old=old, new=new, changes=tuple(changes(old, new)))


def _context_start(text: str, place: int) -> int:
    """Return the start of the line at `place`, and of the lines of context before it."""
    for _ in range(_CONTEXT + 1):
        place = text.rfind("\n", 0, place)
        if place < 0:
            return 0
    return place + 1


def _context_end(text: str, place: int) -> int:
    """Return the end of the line at `place`, and of the lines of context after it."""
    for _ in range(_CONTEXT + 1):
        place = text.find("\n", place) + 1
        if place == 0:
            return len(text)
    return place


def _count(text: str) -> int:
    return text.count("\n") + (text[-1:] not in ("", "\n"))


def _lines(text: str) -> list[str]:
    """Split into lines with their "\n"; a carriage return belongs to its line, as in every diff."""
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + ([last] if last else [])


def _fitting(rows: Iterable[_Row], limit: int) -> tuple[list[_Row], bool]:
    """Return the first rows of at most `limit` bytes, and whether that is all of them."""
    shown: list[_Row] = []
    for row in rows:
        limit -= row.size
        if limit < 0:
            return shown, False
        shown.append(row)
    return shown, True


def _rows(part: _Part, path: str, to: str) -> Iterator[_Row]:
    yield _Row(text=f"--- {path}\n" if path.startswith("/") else f"--- a/{path}\n")
    yield _Row(text=f"+++ {to}\n" if to.startswith("/") else f"+++ b/{to}\n")
    for hunk in _hunks(part.changes):
        yield from _hunk_rows(part, hunk)


def _hunks(found: Sequence[Change]) -> Iterator[list[Change]]:
    """Group changes whose context would touch."""
    hunk: list[Change] = []
    for change in found:
        if hunk and change.old_start - hunk[-1].old_end > 2 * _CONTEXT:
            yield hunk
            hunk = []
        hunk.append(change)
    yield hunk


def _rows_backwards(part: _Part) -> Iterator[_Row]:
    """The rows of all hunks, the last one first."""
    for hunk in reversed(list(_hunks(part.changes))):
        yield from reversed(_context_rows(_context_after(part, hunk)))
        for index in reversed(range(len(hunk))):
            removed, added = _sides(part, hunk[index])
            yield from (_changed_row("+", added, removed, line) for line in reversed(range(len(added))))
            yield from (_changed_row("-", removed, added, line) for line in reversed(range(len(removed))))
            yield from reversed(_context_rows(_context_before(part, hunk, index)))
        yield _header(part, hunk)


def _hunk_rows(part: _Part, hunk: Sequence[Change]) -> Iterator[_Row]:
    yield _header(part, hunk)
    for index, change in enumerate(hunk):
        yield from _context_rows(_context_before(part, hunk, index))
        removed, added = _sides(part, change)
        yield from (_changed_row("-", removed, added, line) for line in range(len(removed)))
        yield from (_changed_row("+", added, removed, line) for line in range(len(added)))
    yield from _context_rows(_context_after(part, hunk))


def _header(part: _Part, hunk: Sequence[Change]) -> _Row:
    before, after = len(_context_before(part, hunk, 0)), len(_context_after(part, hunk))
    old_range = _range(part.first + hunk[0].old_start - before, part.first + hunk[-1].old_end + after)
    new_range = _range(part.first + hunk[0].new_start - before, part.first + hunk[-1].new_end + after)
    return _Row(text=f"@@ -{old_range} +{new_range} @@\n")


def _context_before(part: _Part, hunk: Sequence[Change], index: int) -> Sequence[str]:
    """The unchanged lines before a change of the hunk: all since the previous one, some before the first."""
    end = hunk[index].old_start
    return part.old[hunk[index - 1].old_end if index else max(0, end - _CONTEXT) : end]


def _context_after(part: _Part, hunk: Sequence[Change]) -> Sequence[str]:
    """The unchanged lines after the last change of the hunk."""
    return part.old[hunk[-1].old_end : hunk[-1].old_end + _CONTEXT]


def _sides(part: _Part, change: Change) -> tuple[Sequence[str], Sequence[str]]:
    """The removed and the added lines."""
    return part.old[change.old_start : change.old_end], part.new[change.new_start : change.new_end]


def _range(start: int, end: int) -> str:
    """Format a range of lines for a hunk header; an empty one is named by the line before it."""
    match end - start:
        case 0:
            return f"{start},0"
        case 1:
            return f"{start + 1}"
        case count:
            return f"{start + 1},{count}"


def _context_rows(lines: Sequence[str]) -> list[_Row]:
    return [_row(" ", line, 0) for line in lines]


def _changed_row(sign: str, lines: Sequence[str], others: Sequence[str], index: int) -> _Row:
    """The row of one of the removed or added `lines`, shown where it differs from its counterpart."""
    line, other = lines[index], others[index] if index < len(others) else None
    return _row(sign, line, _first_difference(line, other))


def _row(sign: str, line: str, place: int) -> _Row:
    body = line.removesuffix("\n")
    end = "\n" if body != line else "\n\\ No newline at end of file\n"
    start = max(0, min(place - _LEAD_CHARACTERS, len(body) - _LINE_CHARACTERS))
    window = body[start : start + _LINE_CHARACTERS]
    head, tail = _GAP * (start > 0), _GAP * (start + len(window) < len(body))
    return _Row(
        text=f"{sign}{head}{window}{tail}{end}", changed=sign != " ", shortened=len(window) < len(body)
    )


def _first_difference(line: str, other: str | None) -> int:
    """Return the index of the first difference between a long line and its counterpart."""
    return 0 if other is None or len(line) <= _LINE_CHARACTERS else common_start(line, other)
