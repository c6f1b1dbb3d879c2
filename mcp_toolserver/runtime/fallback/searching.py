"""Lines that match, as ripgrep prints them."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from mcp_toolserver.runtime.fallback.options import Options
from mcp_toolserver.runtime.fallback.reading import text_of


@dataclass(frozen=True, kw_only=True)
class Matches:
    """What matched in a text."""

    lines: Sequence[str]
    numbers: Sequence[int]
    """Of the lines that a match touches, from 0, ascending."""
    count: int


def matches(text: str, pattern: re.Pattern[str], *, is_multiline: bool) -> Matches:
    """Search a text, line by line or as a whole."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    if is_multiline:
        return _spanning(text, lines, pattern)
    numbers = [number for number, line in enumerate(lines) if pattern.search(line.removesuffix("\r"))]
    return Matches(lines=lines, numbers=numbers, count=len(numbers))


def _spanning(text: str, lines: Sequence[str], pattern: re.Pattern[str]) -> Matches:
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    numbers: set[int] = set()
    count = 0
    for match in pattern.finditer(text):
        first = bisect_right(starts, match.start()) - 1
        if first >= len(lines):
            break
        last = bisect_right(starts, max(match.start(), match.end() - 1)) - 1
        numbers.update(range(first, min(last, len(lines) - 1) + 1))
        count += 1
    return Matches(lines=lines, numbers=sorted(numbers), count=count)


@dataclass(frozen=True, kw_only=True)
class Search:
    """A search for lines."""

    given: Options
    pattern: re.Pattern[str]

    def report(self, path: str, data: bytes) -> bytes:
        """What to print about a file that was met on the way; nothing when it does not match."""
        text = text_of(data)
        if text is None:
            return b""
        found = self._matches(text)
        return self._printed(path, found) if found.numbers else b""

    def report_named(self, path: str, data: bytes) -> bytes:
        """What to print about a file that was asked for, which may be binary."""
        if text_of(data) is not None:
            return self.report(path, data)
        found = self._matches(data.replace(b"\0", b"\n").decode("utf-8", "surrogateescape"))
        if not found.numbers:
            return b""
        if self.given.flags & {"files-with-matches", "count"}:
            return self._printed(path, found)
        return f'{path}: binary file matches (found "\\0" byte around offset {data.index(0)})\n'.encode()

    def _matches(self, text: str) -> Matches:
        return matches(text, self.pattern, is_multiline="multiline" in self.given.flags)

    def _printed(self, path: str, found: Matches) -> bytes:
        start = path.encode("utf-8", "surrogateescape") + b"\0"
        if "files-with-matches" in self.given.flags:
            return start
        if "count" in self.given.flags:
            return start + b"%d\n" % found.count
        return start + b"".join(self._lines(found)) + b"\n"

    def _lines(self, found: Matches) -> Iterator[bytes]:
        matching = frozenset(found.numbers)
        encoded = [line.encode("utf-8", "surrogateescape") for line in found.lines]
        offsets = list(accumulate((len(line) + 1 for line in encoded), initial=0))
        for number in self._near(found):
            sign = b":" if number in matching else b"-"
            yield b"%d%b%d%b%b\n" % (number + 1, sign, offsets[number], sign, self._cut(encoded[number]))

    def _near(self, found: Matches) -> Sequence[int]:
        before, after = self.given.number("before-context"), self.given.number("after-context")
        near = {
            number
            for match in found.numbers
            for number in range(max(0, match - before), min(len(found.lines), match + after + 1))
        }
        return sorted(near)

    def _cut(self, line: bytes) -> bytes:
        end = self.given.number("max-columns")
        if len(line) <= end:
            return line
        while line[end] & 0xC0 == 0x80:
            end -= 1
        return line[:end] + b" [... omitted end of long line]"
