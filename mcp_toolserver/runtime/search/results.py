"""Parses the output of ripgrep: the newest of the files that it lists, or matches per file and their numbers,
of which it formats the requested window, after checking its lines again where necessary.

ripgrep prints files in no particular order, each in one piece. The matches are kept until the end and sorted.
When there are too many to keep, ripgrep runs again in path order and stops when the requested window is full.
"""

import codecs
import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.search import FoundLines, LineQuery
from mcp_toolserver.errors import ToolError
from mcp_toolserver.runtime.files.path_resolver import inside, showable
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.search.ripgrep_args import MAX_COLUMNS
from mcp_toolserver.runtime.search.target import Filter, SearchTarget
from mcp_toolserver.text.lines.encoding import decode_page, without_cut_start

MAX_KEPT = 32 << 20
"""Bytes of matches kept."""

CUT = "[...] "
"""Stands for what is left out at the start of a line."""

_CUT_AT = 8
"""Candidates for the newest files before the older ones are dropped, in multiples of the limit."""

_NOTE = rb"(?:(?!\n)[^\0]*?: (WARNING: stopped searching binary file)[^\n]*\n)?"
_BLOCK = re.compile(rb"([^\0]*)\0((?:\d[^\n]*\n)*+)" + _NOTE + rb"\r?\n")
# With one thread, ripgrep ends the empty line after a block as it ends those of the files.
_BLOCK_END = re.compile(rb"\n\r?\n")
_COUNT = re.compile(rb"([^\0]*)\0(\d+)\r?\n()")
_MATCHING = re.compile(rb"^\d+:", re.MULTILINE)
_BINARY = re.compile(rb"^<stdin>: binary file matches[^\n]*\n\Z", re.MULTILINE)

_MAX_TRANSCODED = 64 << 20
_LEAD = 200
"""Bytes of a long line shown before its first match."""
_LINE = re.compile(rb"(\d+)(?::(\d+):|-)(\d+)[:-]([^\n]*)\n")


class FileMatches(NamedTuple):
    """The matches in one file. A tuple, because there may be a hundred thousand of them."""

    name: str
    """Its path relative to the searched folder. Bytes that are not UTF-8 are lone surrogates."""
    body: bytes
    """Numbered lines in content mode."""
    matches: int
    entries: int
    """The number that limit and offset count."""


class Results:
    """The matches of one search, as many as are needed."""

    def __init__(self, query: LineQuery, wanted: Callable[[str], bool], *, ordered: bool) -> None:
        self._mode = query.mode
        self._has_context = query.before + query.after > 0
        self._wanted = wanted
        self._ordered = ordered
        self._first = query.offset
        self._last = query.offset + query.limit if query.limit else None
        self._rest = bytearray()
        """Output of a file that is not complete yet."""
        self._looked_at = 0
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
        self.is_binary = False
        """Whether a file searched by itself turned out to be binary."""

    @property
    def has_output(self) -> bool:
        return self._size > 0

    def add(self, data: bytes) -> bool:
        """Parse output; return whether no more is needed."""
        self._size += len(data)
        self._rest += data
        # A block may be long and come in many pieces; it is parsed only when its end has come.
        if self._mode != "content" or _BLOCK_END.search(self._rest, self._looked_at):
            self._take(bytes(self._rest))
        self._looked_at = max(0, len(self._rest) - 2)
        past = self._ordered and self._last is not None and self.total > self._last
        kept = self._kept + len(self._rest) if self._ordered else self._size
        self.is_full = past or kept > MAX_KEPT
        return self.is_full

    def finish(self) -> None:
        """Parse the rest of the output, of an incomplete file its complete lines, and sort the files by
        path."""
        rest = bytes(self._rest)
        if self._mode == "content":
            self.is_binary = _BINARY.search(rest) is not None
            rest = rest[: rest.rfind(b"\n") + 1] + b"\n"
        self._take(rest)
        self.hits.sort(key=lambda hit: hit.name.replace("/", "\0"))

    def _take(self, data: bytes) -> None:
        """Take the files that are complete in `data`, and leave the rest of it."""
        wanted = self._wanted
        taken = [hit for hit in self._cut(data) if wanted(hit.name)]
        self.files += len(taken)
        self.matches += sum(hit.matches for hit in taken)
        if self._ordered:
            for hit in taken:
                self._keep(hit)
        else:
            self.total += sum(hit.entries for hit in taken)
            self.hits += taken

    def _cut(self, data: bytes) -> Iterator[FileMatches]:
        if self._mode == "files_with_matches":
            whole, end, rest = data.rpartition(b"\0")
            self._rest = bytearray(rest)
            for name in whole.decode("utf-8", "surrogateescape").split("\0") if end else ():
                yield FileMatches(name.removeprefix("./"), b"", 1, 1)
            return
        record, position = _BLOCK if self._mode == "content" else _COUNT, 0
        while found := record.match(data, position):
            name, body, note = found.groups()
            position = found.end()
            if not note:
                yield self._hit(name.decode("utf-8", "surrogateescape").removeprefix("./"), body)
        self._rest = bytearray(data[position:])

    def _hit(self, name: str, body: bytes) -> FileMatches:
        if self._mode == "count":
            return FileMatches(name, b"", int(body), 1)
        matches = len(_MATCHING.findall(body)) if self._has_context else body.count(b"\n")
        return FileMatches(name, body, matches, matches)

    def _keep(self, hit: FileMatches) -> None:
        """Keep a file of a search in path order if it is in the window."""
        self.total += hit.entries
        if self.total <= self._first:
            self.skipped += hit.entries
        elif self._last is None or self.total - hit.entries < self._last:
            self.hits.append(hit)
            self._kept += len(hit.body)


class NewestFiles:
    """The newest of the wanted files that ripgrep lists, and their total number.

    The server looks up the times while ripgrep still walks with all its threads. ripgrep could sort by time
    itself, but then it walks with one thread, which is slower unless thousands of files match.
    """

    def __init__(self, folder: int, wanted: Filter, limit: int) -> None:
        self._folder = folder
        self._wanted = wanted
        self._limit = limit
        self._rest = b""
        self._candidates: list[tuple[int, str]] = []
        self.total = 0
        self.has_output = False
        """Whether ripgrep listed any file, wanted or not."""

    def add(self, data: bytes) -> bool:
        """Parse NUL-terminated names; always return False, because all files are counted."""
        whole, end, self._rest = (self._rest + data).rpartition(b"\0")
        if end:
            self.has_output = True
            found = list(self._dated(self._chosen(whole)))
            self.total += len(found)
            self._candidates += found
        if len(self._candidates) > _CUT_AT * self._limit:
            self._cut()
        return False

    def finish(self) -> None:
        """Drop all but the newest, and sort them."""
        self._cut()
        self._candidates.sort()
        del self._candidates[self._limit :]

    def newest(self) -> list[str]:
        """Newest first; of one age, by path."""
        return [name for _, name in self._candidates]

    def _chosen(self, names: bytes) -> Iterator[tuple[bytes, str]]:
        """Wanted names, also as bytes, which saves encoding them for the system call."""
        whole = ("\0" + names.decode("utf-8", "surrogateescape")).replace("\0./", "\0")
        pairs = zip(names.split(b"\0"), whole[1:].split("\0"), strict=True)
        # Thousands of names are checked as one string where that is enough.
        if self._wanted.is_open and (self._wanted.dots or ("\0." not in whole and "/." not in whole)):
            return pairs
        return (pair for pair in pairs if self._wanted(pair[1]))

    def _dated(self, names: Iterator[tuple[bytes, str]]) -> Iterator[tuple[int, str]]:
        for path, name in names:
            try:
                yield -os.lstat(path, dir_fd=self._folder).st_mtime_ns, name
            except OSError:
                continue

    def _cut(self) -> None:
        if len(self._candidates) > self._limit:
            oldest = sorted(age for age, _ in self._candidates)[self._limit - 1]
            self._candidates = [candidate for candidate in self._candidates if candidate[0] <= oldest]


# --- the text of the window ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of a file, as ripgrep printed it."""

    number: int
    column: int
    """Of its first match in bytes, from 1; 0 without one."""
    offset: int
    """Bytes before it in the file, without a byte order mark."""
    text: bytes


def format_result(
    check: "Check", place: SearchTarget, query: LineQuery, found: Results, errors: Sequence[str]
) -> FoundLines:
    """Format the entries of `found` that `query` asks for. Files that `check` rejects are listed as errors
    instead."""
    problems = list(errors)
    if found.is_binary:
        problems.append(f"{showable(query.path)}: matches, but is binary; its lines are not shown")
    if query.mode == "content":
        text = _content(check, place, query, _windows(found, query), problems)
    else:
        text = _names(place, query, found)
    left = max(0, found.total - query.offset)
    return FoundLines(
        text=text,
        shown=min(query.limit, left) if query.limit else left,
        total=found.total,
        complete=not found.is_full,
        files=found.files,
        matches=found.matches,
        errors=tuple(problems),
    )


def _names(place: SearchTarget, query: LineQuery, found: Results) -> str:
    first = query.offset - found.skipped
    hits = found.hits[first : first + query.limit if query.limit else None]
    paths = [showable(place.file or inside(place.path, hit.name)) for hit in hits]
    if query.mode == "count":
        paths = [f"{path}:{hit.matches}" for path, hit in zip(paths, hits, strict=True)]
    return "\n".join(paths)


def _windows(found: Results, query: LineQuery) -> Iterator[tuple[FileMatches, int, int]]:
    """The matches of each file, and how many of its entries to skip and to take."""
    position = found.skipped
    end = query.offset + query.limit if query.limit else found.total
    for hit in found.hits:
        if position >= end:
            return
        skip = max(0, query.offset - position)
        take = min(hit.entries, end - position) - skip
        if take > 0:
            yield hit, skip, take
        position += hit.entries


def _content(
    check: "Check",
    place: SearchTarget,
    query: LineQuery,
    windows: Iterable[tuple[FileMatches, int, int]],
    problems: list[str],
) -> str:
    pieces: list[str] = []
    for hit, skip, take in windows:
        path = place.file or inside(place.path, hit.name)
        near = check(path, _around(tuple(_lines(hit)), skip, take, query))
        if near is None:
            problems.append(f"{showable(path)}: changed during the search")
        else:
            name = None if place.file else showable(path)
            pieces.append("\n".join(_shown_lines(name, near, query)))
    return ("\n--\n" if query.before + query.after else "\n").join(pieces)


def _lines(hit: FileMatches) -> Iterator[Line]:
    """The lines of a file in content mode, without the CR that ripgrep adds where a file has none."""
    for number, column, offset, text in _LINE.findall(hit.body):
        yield Line(
            number=int(number), column=int(column or 0), offset=int(offset), text=text.removesuffix(b"\r")
        )


def _around(found: Sequence[Line], skip: int, take: int, query: LineQuery) -> Sequence[Line]:
    """`take` of the matching lines after the first `skip`, with their context."""
    numbers = [line.number for line in found if line.column][skip : skip + take]
    if len(numbers) == len(found):
        return found

    def is_near(line: Line) -> bool:
        low = bisect_left(numbers, line.number - query.after)
        return low < bisect_right(numbers, line.number + query.before)

    return [line for line in found if is_near(line)]


def _shown_lines(path: str | None, near: Sequence[Line], query: LineQuery) -> Iterator[str]:
    """The lines behind the path, as ripgrep shows them; of a single file, which the caller named, without."""
    for position, line in enumerate(near):
        has_context = query.before + query.after > 0
        if has_context and position and line.number != near[position - 1].number + 1:
            yield "--"
        sign = ":" if line.column else "-"
        parts = (path, str(line.number) if query.line_numbers else None, line.text.decode("utf-8", "replace"))
        yield sign.join(part for part in parts if part is not None)


Check = Callable[[CanonicalPath, Sequence[Line]], Sequence[Line] | None]
"""Path and lines of a file → the lines as they are to be shown; None if they are no longer there."""


def checked(
    workspace: Workspace, path: CanonicalPath, near: Sequence[Line], *, recheck: bool
) -> Sequence[Line] | None:
    """A `Check` that shows long lines around their first match. Without `recheck`, which is not needed where
    ripgrep could read nothing else, it rejects none."""
    if not recheck and all(len(line.text) <= MAX_COLUMNS for line in near):
        return near
    try:
        with _opened(workspace, path) as read:
            if recheck and not all(_is_at(line, read) for line in near):
                return None
            return [line if len(line.text) <= MAX_COLUMNS else _around_match(line, read) for line in near]
    except ToolError:
        return None if recheck else near


_Read = Callable[[int, int], bytes]
"""A number of bytes, and an offset as ripgrep counts it → what the file has there."""


@contextmanager
def _opened(workspace: Workspace, path: CanonicalPath) -> Generator[_Read]:
    """Raises: ToolError: there is no such regular file in the workspace."""
    fd = workspace.open_file(path)
    with os.fdopen(fd, "rb"):
        head = os.pread(fd, len(codecs.BOM_UTF8), 0)
        if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            data = os.pread(fd, _MAX_TRANSCODED, 0).decode("utf-16", "replace").encode()
            yield lambda size, start: data[start : start + size]
        else:
            mark = len(head) if head == codecs.BOM_UTF8 else 0
            yield lambda size, start: os.pread(fd, size, start + mark)


def _is_at(line: Line, read: _Read) -> bool:
    # Of a longer line, ripgrep shows at least so many bytes.
    size = min(len(line.text), MAX_COLUMNS)
    return read(size, line.offset) == line.text[:size]


def _around_match(line: Line, read: _Read) -> Line:
    """A part of a long line, and where read_file goes on with it."""
    start = max(0, line.column - _LEAD)
    part, line_feed, _ = read(MAX_COLUMNS + 1, line.offset + start).partition(b"\n")
    is_end = bool(line_feed) or len(part) <= MAX_COLUMNS
    whole = without_cut_start(part) if start else part
    text, size = decode_page(whole if is_end else whole[:MAX_COLUMNS], last=is_end)
    end = start + len(part) - len(whole) + size
    more = "" if is_end else f" [... read_file goes on with offset={line.number - 1}, column={end}]"
    return replace(line, text=f"{CUT * (start > 0)}{text.removesuffix(chr(13))}{more}".encode())
