"""Computes a unified diff of bounded size, in bounded time."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from difflib import Match, SequenceMatcher
from io import StringIO
from itertools import accumulate, chain, repeat

from mcp_toolserver.text.lines.encoding import head_bytes

_CONTEXT = 3
_LINES = 300_000
"""Old and new lines, from the first difference to the last, beyond which a diff only counts them."""
_STEPS = 1_500_000
"""Comparisons by `difflib`, which is quadratic at best; a fraction of a second."""
_FEW_LINES = 200
"""Below this, `difflib` looks for every line; above, not for those that are more than a hundredth of all."""
_LINE_CHARACTERS = 1_000
_LEAD_CHARACTERS = 200
"""How much of a shortened line is shown before the place where it differs."""
_NOTE_BYTES = 160
"""Room for the lines that say what is not shown."""
_GAP = "[…]"

ECHOED = 4_000
"""Default bytes of a diff that tells a model what it has just changed."""


def unified(before: str, after: str, path: str, *, to: str | None = None, limit: int = ECHOED) -> str:
    """Return a unified diff, as of `git diff`, of at most `limit` UTF-8 bytes; "" for equal texts.

    `to` is where the new text lies, if elsewhere. Lines end at "\\n" only. Lines over 1,000 characters are
    shortened around the place where they differ, which the last line says. A diff that is too long is cut in
    the middle, where a line says how many changed lines are left out.
    """
    if before == after:
        return ""
    rows, hidden = _rows(before, after)
    names = ("---", "a/", path), ("+++", "b/", path if to is None else to)
    rows[:0] = [f"{sign} {'' if name.startswith('/') else side}{name}\n" for sign, side, name in names]
    whole = "".join(rows)
    is_shortened = _GAP in whole and any(map(_is_shortened, rows))
    start, end, room = rows, list[str](), limit - _NOTE_BYTES
    if _size(whole) > (room if is_shortened else limit):
        start = _fitting(rows, room - room // 4)
        end = _fitting(rows[max(2, len(start)) :][::-1], room - sum(map(_size, start)))[::-1]
    missing = hidden + sum(row[0] in "-+" for row in rows[max(2, len(start)) : len(rows) - len(end)])
    notes = [f"[{missing} more changed lines are left out here; read_file shows them]\n"] * (missing > 0)
    if is_shortened and any(map(_is_shortened, (*start, *end))):
        end.append(f"[lines over {_LINE_CHARACTERS} characters are shortened at {_GAP}]\n")
    return head_bytes("".join((*start, *notes, *end)), limit)


def cut_middle(text: str, limit: int) -> str:
    """Return `text` with whole lines left out in the middle, where it has more than `limit` characters."""
    if len(text) <= limit:
        return text
    start = text.rfind("\n", 0, limit // 2) + 1
    end = text.find("\n", len(text) - limit // 2) + 1
    left_out = text.count("\n", start, end)
    gap = f"[{left_out} lines in the middle of the diff are left out; read_file shows them]\n"
    return f"{text[:start]}{gap}{text[end:]}"


def _fitting(rows: list[str], room: int) -> list[str]:
    return rows[: bisect_right(list(accumulate(map(_size, rows))), room)]


def _size(row: str) -> int:
    return len(row.encode(errors="surrogatepass"))


def _rows(before: str, after: str) -> tuple[list[str], int]:
    """Return the lines of all hunks, and the number of changed lines if they are too many to be compared.

    What is the same at the start and the end of both texts is not split into lines.
    """
    start = place = common_start(before, after)
    tail = min(common_start(before[::-1], after[::-1]), min(len(before), len(after)) - start)
    end = len(before) - tail
    for _ in range(_CONTEXT + 1):
        place = before.rfind("\n", 0, max(place, 0))
        end = before.find("\n", end) + 1 or len(before)
    start = place + 1
    first = before.count("\n", 0, start)
    removed, added = before[start:end], after[start : len(after) - (len(before) - end)]
    sizes = [text.count("\n") + (text[-1:] not in ("", "\n")) for text in (removed, added)]
    if sum(sizes) > _LINES:
        return [_header(first, sizes[0], first, sizes[1])], sum(sizes)
    matcher = _Matcher(list(StringIO(removed, newline="\n")), list(StringIO(added, newline="\n")))
    return [row for hunk in matcher.get_grouped_opcodes(_CONTEXT) for row in _hunk(matcher, first, hunk)], 0


class _Matcher(SequenceMatcher[str]):
    """`difflib` with bounded work. After that, it only finds equal lines at either end of a range."""

    b2j: Mapping[str, Sequence[int]]

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        super().__init__(None, old, new)
        self.old, self.new, self._common, self._steps = old, new, {*old} & {*new}, _STEPS

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> Match:
        """Find a run of equal lines in two ranges: the first one, if only lines of one text are before it."""
        ahi, bhi = len(self.old) if ahi is None else ahi, len(self.new) if bhi is None else bhi
        a = next((a for a in range(alo, ahi) if self.old[a] in self._common), ahi)
        b = next((b for b in range(blo, bhi) if self.new[b] in self._common), bhi)
        pairs = zip(range(a, ahi), range(b, bhi), strict=False)
        size = next((x - a for x, y in pairs if self.old[x] != self.new[y]), min(ahi - a, bhi - b))
        if size or a == ahi or b == bhi:
            return Match(a, b, size)
        old, new = self.old[a:ahi], self.new[b:bhi]
        few = max(len(old), len(new)) < _FEW_LINES
        if self._steps > 0:
            work = len(old) * len(new) if few else sum(len(self.b2j.get(line, ())) for line in old)
            self._steps -= work + ahi - alo + bhi - blo
        if self._steps <= 0:
            size = common_start(old[::-1], new[::-1])
            return Match(ahi - size, bhi - size, size)
        if not few:
            return super().find_longest_match(a, ahi, b, bhi)
        match = SequenceMatcher(None, old, new).find_longest_match()
        return Match(a + match.a, b + match.b, match.size)


def _hunk(matcher: _Matcher, first: int, hunk: list[tuple[str, int, int, int, int]]) -> list[str]:
    (_, old, _, new, _), (_, _, old_end, _, new_end) = hunk[0], hunk[-1]
    rows = [_header(first + old, old_end - old, first + new, new_end - new)]
    for kind, old, old_end, new, new_end in hunk:
        removed, added = matcher.old[old:old_end], matcher.new[new:new_end]
        if kind == "equal":
            rows += map(_row, repeat(" "), removed, repeat(""))
        else:
            rows += map(_row, repeat("-"), removed, chain(added, repeat("")))
            rows += map(_row, repeat("+"), added, chain(removed, repeat("")))
    return rows


def _header(old: int, old_size: int, new: int, new_size: int) -> str:
    return f"@@ -{_range(old, old_size)} +{_range(new, new_size)} @@\n"


def _range(start: int, size: int) -> str:
    """Format a range of lines for a hunk header; an empty one is named by the line before it."""
    return f"{start + 1}" if size == 1 else f"{start + (size > 0)},{size}"


def _row(sign: str, line: str, other: str) -> str:
    """Return a line of the diff, shown where it differs from its counterpart."""
    body = line.removesuffix("\n")
    end = "\n" if body != line else "\n\\ No newline at end of file\n"
    place = common_start(line, other) if len(line) > _LINE_CHARACTERS else 0
    start = max(0, min(place - _LEAD_CHARACTERS, len(body) - _LINE_CHARACTERS))
    window = body[start : start + _LINE_CHARACTERS]
    head, tail = _GAP * (start > 0), _GAP * (start + len(window) < len(body))
    return f"{sign}{head}{window}{tail}{end}"


def _is_shortened(row: str) -> bool:
    return _GAP in row and len(row.partition("\n")[0]) > _LINE_CHARACTERS + 1


def common_start(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the common prefix of two texts, or lists of lines: by bisection, which compares
    memory."""
    known, end = 0, min(len(one), len(other)) + 1
    while end - known > 1:
        middle = (known + end) // 2
        if one[known:middle] == other[known:middle]:
            known = middle
        else:
            end = middle
    return known
