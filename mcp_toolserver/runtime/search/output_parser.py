"""What a search program prints, cut into files and counted.

Results of ripgrep come in no particular order, each file's in one piece. They are kept until the end and
sorted. When they are too many to keep, the search is made again in path order and ends when the window is
full.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from mcp_toolserver.capabilities.search import LineQuery, SearchMode

MAX_KEPT = 32 << 20
"""Bytes of results kept."""

_NOTE = rb"(?:(?!\n)[^\0]*?: (WARNING: stopped searching binary file)[^\n]*\n)?"
_BLOCK = re.compile(rb"([^\0]*)\0((?:\d[^\n]*\n)*+)" + _NOTE + rb"\r?\n")
# With one thread, ripgrep ends the empty line after a block as it ends those of the files.
_BLOCK_END = re.compile(rb"\n\r?\n")
_COUNT = re.compile(rb"([^\0]*)\0(\d+)\r?\n()")
_MATCHING = re.compile(rb"^\d+:", re.MULTILINE)
_BINARY = re.compile(rb"^<stdin>: binary file matches[^\n]*\n\Z", re.MULTILINE)


class Hit(NamedTuple):
    """What was found in one file. A tuple, because there may be a hundred thousand of them."""

    name: str
    """Its path beneath the searched folder. Bytes that are no UTF-8 are lone surrogates."""
    body: bytes
    """Numbered lines in content mode."""
    matches: int
    entries: int
    """What limit and offset count."""


Cut = tuple[list[Hit], bytes]
"""Hits, and the rest that is not part of one yet."""


def _names(data: bytes) -> Cut:
    whole, end, rest = data.rpartition(b"\0")
    names = whole.decode("utf-8", "surrogateescape").split("\0") if end else ()
    return [Hit(name.removeprefix("./"), b"", 1, 1) for name in names], rest


def _counts(data: bytes) -> Cut:
    return _records(_COUNT, data, lambda name, count: Hit(name, b"", int(count), 1))


def _blocks(data: bytes) -> Cut:
    return _records(_BLOCK, data, _by_lines)


def _by_lines(name: str, body: bytes) -> Hit:
    matches = body.count(b"\n")
    return Hit(name, body, matches, matches)


def _blocks_in_context(data: bytes) -> Cut:
    return _records(_BLOCK, data, _by_matches)


def _by_matches(name: str, body: bytes) -> Hit:
    matches = len(_MATCHING.findall(body))
    return Hit(name, body, matches, matches)


def _records(record: re.Pattern[bytes], data: bytes, made: Callable[[str, bytes], Hit]) -> Cut:
    hits: list[Hit] = []
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
    """Cuts a stream into hits."""

    def __init__(self, mode: SearchMode, *, has_context: bool) -> None:
        self._is_content = mode == "content"
        self._cut = _blocks_in_context if has_context and self._is_content else _CUTS[mode]
        self._rest = bytearray()
        self._looked_at = 0
        self.is_binary = False
        """Whether a file searched by itself turned out to be binary."""

    @property
    def pending(self) -> int:
        """Bytes that are not part of a hit yet."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[Hit]:
        """The hits that `data` completes."""
        self._rest += data
        # A block may be long and come in many pieces. None but its end is worth a look at the whole.
        if self._is_content and not _BLOCK_END.search(self._rest, self._looked_at):
            self._looked_at = max(0, len(self._rest) - 2)
            return []
        return self._taken(self._cut(bytes(self._rest)))

    def finish(self) -> list[Hit]:
        """The hits that the end completes; of one that is not whole, its whole lines."""
        if not self._is_content:
            return self._taken(self._cut(bytes(self._rest)))
        self.is_binary = _BINARY.search(self._rest) is not None
        return self._taken(self._cut(bytes(self._rest[: self._rest.rfind(b"\n") + 1]) + b"\n"))

    def _taken(self, cut: Cut) -> list[Hit]:
        hits, rest = cut
        self._rest = bytearray(rest)
        self._looked_at = 0
        return hits


class Collection:
    """The hits of one search, as many as are needed."""

    def __init__(self, query: LineQuery, wanted: Callable[[str], bool], *, ordered: bool) -> None:
        self._records = Records(query.mode, has_context=query.before + query.after > 0)
        self._wanted = wanted
        self._ordered = ordered
        self._first = query.offset
        self._last = query.offset + query.limit if query.limit else None
        self._size = 0
        self._kept = 0
        self.hits: list[Hit] = []
        self.skipped = 0
        """Entries of hits before the window that were not kept."""
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
        """Take in output; whether that is enough."""
        self._size += len(data)
        self._take(self._records.feed(data))
        past = self._ordered and self._last is not None and self.total > self._last
        kept = self._kept + self._records.pending if self._ordered else self._size
        self.is_full = past or kept > MAX_KEPT
        return self.is_full

    def finish(self) -> None:
        """Take in what is left at the end, and bring the hits into path order."""
        self._take(self._records.finish())
        self.hits.sort(key=lambda hit: hit.name.replace("/", "\0"))

    def _take(self, hits: Iterable[Hit]) -> None:
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

    def _keep(self, hit: Hit) -> None:
        """Of a search in path order, only what is in the window."""
        self.total += hit.entries
        if self.total <= self._first:
            self.skipped += hit.entries
        elif self._last is None or self.total - hit.entries < self._last:
            self.hits.append(hit)
            self._kept += len(hit.body)
