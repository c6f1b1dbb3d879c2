"""Parses the output of ripgrep into matches per file, and counts them.

ripgrep prints files in no particular order, each in one piece. The matches are kept until the end and sorted.
When there are too many to keep, ripgrep runs again in path order and stops when the requested window is full.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from mcp_toolserver.capabilities.search import LineQuery, SearchMode

MAX_KEPT = 32 << 20
"""Bytes of matches kept."""

_NOTE = rb"(?:(?!\n)[^\0]*?: (WARNING: stopped searching binary file)[^\n]*\n)?"
_BLOCK = re.compile(rb"([^\0]*)\0((?:\d[^\n]*\n)*+)" + _NOTE + rb"\r?\n")
# With one thread, ripgrep ends the empty line after a block as it ends those of the files.
_BLOCK_END = re.compile(rb"\n\r?\n")
_COUNT = re.compile(rb"([^\0]*)\0(\d+)\r?\n()")
_MATCHING = re.compile(rb"^\d+:", re.MULTILINE)
_BINARY = re.compile(rb"^<stdin>: binary file matches[^\n]*\n\Z", re.MULTILINE)


class FileMatches(NamedTuple):
    """The matches in one file. A tuple, because there may be a hundred thousand of them."""

    name: str
    """Its path relative to the searched folder. Bytes that are not UTF-8 are lone surrogates."""
    body: bytes
    """Numbered lines in content mode."""
    matches: int
    entries: int
    """The number that limit and offset count."""


Cut = tuple[list[FileMatches], bytes]
"""Matches per file, and the bytes after the last complete file."""


def _names(data: bytes) -> Cut:
    whole, end, rest = data.rpartition(b"\0")
    names = whole.decode("utf-8", "surrogateescape").split("\0") if end else ()
    return [FileMatches(name.removeprefix("./"), b"", 1, 1) for name in names], rest


def _counts(data: bytes) -> Cut:
    return _records(_COUNT, data, lambda name, count: FileMatches(name, b"", int(count), 1))


def _blocks(data: bytes) -> Cut:
    return _records(_BLOCK, data, _by_lines)


def _by_lines(name: str, body: bytes) -> FileMatches:
    matches = body.count(b"\n")
    return FileMatches(name, body, matches, matches)


def _blocks_in_context(data: bytes) -> Cut:
    return _records(_BLOCK, data, _by_matches)


def _by_matches(name: str, body: bytes) -> FileMatches:
    matches = len(_MATCHING.findall(body))
    return FileMatches(name, body, matches, matches)


def _records(record: re.Pattern[bytes], data: bytes, made: Callable[[str, bytes], FileMatches]) -> Cut:
    hits: list[FileMatches] = []
    position = 0
    while found := record.match(data, position):
        name, body, note = found.groups()
        position = found.end()
        if not note:
            hits.append(made(name.decode("utf-8", "surrogateescape").removeprefix("./"), body))
    return hits, data[position:]


_CUTS: Mapping[SearchMode, Callable[[bytes], Cut]] = {
    "content": _blocks,
    "count": _counts,
    "files_with_matches": _names,
}


class Records:
    """Splits a stream into the matches of each file."""

    def __init__(self, mode: SearchMode, *, has_context: bool) -> None:
        self._is_content = mode == "content"
        self._cut = _blocks_in_context if has_context and self._is_content else _CUTS[mode]
        self._rest = bytearray()
        self._looked_at = 0
        self.is_binary = False
        """Whether a file searched by itself turned out to be binary."""

    @property
    def pending(self) -> int:
        """Bytes of a file that is not complete yet."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[FileMatches]:
        """The files that `data` completes."""
        self._rest += data
        # A block may be long and come in many pieces; it is parsed only when its end has come.
        if self._is_content and not _BLOCK_END.search(self._rest, self._looked_at):
            self._looked_at = max(0, len(self._rest) - 2)
            return []
        return self._taken(self._cut(bytes(self._rest)))

    def finish(self) -> list[FileMatches]:
        """The files that the end of the output completes; of an incomplete file, its complete lines."""
        if not self._is_content:
            return self._taken(self._cut(bytes(self._rest)))
        self.is_binary = _BINARY.search(self._rest) is not None
        return self._taken(self._cut(bytes(self._rest[: self._rest.rfind(b"\n") + 1]) + b"\n"))

    def _taken(self, cut: Cut) -> list[FileMatches]:
        hits, rest = cut
        self._rest = bytearray(rest)
        self._looked_at = 0
        return hits


class Results:
    """The matches of one search, as many as are needed."""

    def __init__(self, query: LineQuery, wanted: Callable[[str], bool], *, ordered: bool) -> None:
        self._records = Records(query.mode, has_context=query.before + query.after > 0)
        self._wanted = wanted
        self._ordered = ordered
        self._first = query.offset
        self._last = query.offset + query.limit if query.limit else None
        self._size = 0
        self._kept = 0
        self.hits: list[FileMatches] = []
        self.skipped = 0
        """Entries before the window that were not kept."""
        self.total = 0
        self.files = 0
        self.matches = 0
        self.is_full = False
        """Whether the rest of the output is not needed, or cannot be kept."""

    @property
    def is_binary(self) -> bool:
        """See `Records.is_binary`."""
        return self._records.is_binary

    @property
    def has_output(self) -> bool:
        """Whether there was any output."""
        return self._size > 0

    def add(self, data: bytes) -> bool:
        """Parse output; return whether no more is needed."""
        self._size += len(data)
        self._take(self._records.feed(data))
        past = self._ordered and self._last is not None and self.total > self._last
        kept = self._kept + self._records.pending if self._ordered else self._size
        self.is_full = past or kept > MAX_KEPT
        return self.is_full

    def finish(self) -> None:
        """Parse the rest of the output, and sort the files by path."""
        self._take(self._records.finish())
        self.hits.sort(key=lambda hit: hit.name.replace("/", "\0"))

    def _take(self, hits: Iterable[FileMatches]) -> None:
        wanted = self._wanted
        taken = [hit for hit in hits if wanted(hit.name)]
        self.files += len(taken)
        self.matches += sum(hit.matches for hit in taken)
        if self._ordered:
            for hit in taken:
                self._keep(hit)
        else:
            self.total += sum(hit.entries for hit in taken)
            self.hits += taken

    def _keep(self, hit: FileMatches) -> None:
        """Keep a file of a search in path order if it is in the window."""
        self.total += hit.entries
        if self.total <= self._first:
            self.skipped += hit.entries
        elif self._last is None or self.total - hit.entries < self._last:
            self.hits.append(hit)
            self._kept += len(hit.body)
