"""Formats the requested window of a search result, after checking its lines again where necessary."""

import codecs
import os
import re
import stat
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.search import FoundLines, LineQuery
from mcp_toolserver.errors import ToolError
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.search.display_path import inside, showable
from mcp_toolserver.runtime.search.output_parser import FileMatches, Results
from mcp_toolserver.runtime.search.target import SearchTarget

# A FIFO swapped in would keep an opener waiting without O_NONBLOCK.
_NO_LINK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_TRANSCODED = 64 << 20
_LINE = re.compile(rb"(\d+)([:-])(\d+)[:-]([^\n]*)\n")
_OMISSION = re.compile(rb" \[\.\.\. [^\]]+\]\Z")


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of a file, as ripgrep printed it."""

    number: int
    matched: bool
    offset: int
    """Bytes before it in the file, without a byte order mark."""
    text: bytes


def format_result(
    workspace: Workspace | None,
    place: SearchTarget,
    query: LineQuery,
    found: Results,
    errors: Sequence[str],
) -> FoundLines:
    """Format the entries of `found` that `query` asks for.

    Each line is first looked up in `workspace`; files that no longer contain it are listed as errors instead.
    None skips that, for where ripgrep could read nothing else.
    """
    problems = list(errors)
    if found.is_binary:
        problems.append(f"{showable(query.path)}: matches, but is binary; its lines are not shown")
    if query.mode == "content":
        text = _content(workspace, place, query, _windows(found, query), problems)
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


class Window(NamedTuple):
    """The matches of a file, and how many of its entries to skip and to take."""

    hit: FileMatches
    skip: int
    take: int


def _windows(found: Results, query: LineQuery) -> Iterator[Window]:
    position = found.skipped
    end = query.offset + query.limit if query.limit else found.total
    for hit in found.hits:
        if position >= end:
            return
        skip = max(0, query.offset - position)
        take = min(hit.entries, end - position) - skip
        if take > 0:
            yield Window(hit, skip, take)
        position += hit.entries


def _content(
    workspace: Workspace | None,
    place: SearchTarget,
    query: LineQuery,
    windows: Iterable[Window],
    problems: list[str],
) -> str:
    pieces: list[str] = []
    with ExitStack() as stack:
        lookup = None if workspace is None else stack.enter_context(Lookup(workspace))
        for hit, skip, take in windows:
            near = around(tuple(lines(hit)), skip, take, query)
            path = place.file or inside(place.path, hit.name)
            # A single file was searched through its own descriptor.
            if place.file or lookup is None or lookup.holds(path, near):
                name = None if place.file else showable(path)
                pieces.append("\n".join(_shown_lines(name, near, query)))
            else:
                problems.append(f"{showable(path)}: changed during the search")
    return ("\n--\n" if query.before + query.after else "\n").join(pieces)


def lines(hit: FileMatches) -> Iterator[Line]:
    """The lines of a file in content mode, without the CR that ripgrep adds where a file has none."""
    for number, sign, offset, text in _LINE.findall(hit.body):
        yield Line(
            number=int(number), matched=sign == b":", offset=int(offset), text=text.removesuffix(b"\r")
        )


def around(found: Sequence[Line], skip: int, take: int, query: LineQuery) -> Sequence[Line]:
    """`take` of the matching lines after the first `skip`, with their context."""
    numbers = [line.number for line in found if line.matched][skip : skip + take]
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
        sign = ":" if line.matched else "-"
        parts = (path, str(line.number) if query.line_numbers else None, line.text.decode("utf-8", "replace"))
        yield sign.join(part for part in parts if part is not None)


class Lookup(ExitStack):
    """Looks found lines up in the workspace. Files come in path order, so a folder is opened once."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__()
        self._workspace = workspace
        self._path: str = ""
        self._fd: int = -1

    def holds(self, path: CanonicalPath, near: Sequence[Line]) -> bool:
        """Whether there is a regular file in the workspace that contains these lines."""
        folder, _, name = path.rpartition("/")
        try:
            self._enter(folder or ("/" if path.startswith("/") else "."))
            fd = os.open(name, _NO_LINK, dir_fd=self._fd)
        except (OSError, ToolError):
            return False
        try:
            return stat.S_ISREG(os.fstat(fd).st_mode) and _holds(fd, near)
        finally:
            os.close(fd)

    def _enter(self, folder: str) -> None:
        if folder != self._path:
            self.close()
            self._path = ""
            self._fd = self._workspace.hold_dir(CanonicalPath(folder))
            self.callback(os.close, self._fd)
            self._path = folder


def _holds(fd: int, near: Sequence[Line]) -> bool:
    """Whether the open file contains these lines at their offsets."""
    head = os.pread(fd, len(codecs.BOM_UTF8), 0)
    if head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        data = os.pread(fd, _MAX_TRANSCODED, 0).decode("utf-16", "replace").encode()
        return all(_is_at(line, lambda size, start: data[start : start + size], 0) for line in near)
    mark = len(head) if head == codecs.BOM_UTF8 else 0
    return all(_is_at(line, lambda size, start: os.pread(fd, size, start), mark) for line in near)


def _is_at(line: Line, read: Callable[[int, int], bytes], shift: int) -> bool:
    there = read(len(line.text), line.offset + shift)
    cut = _OMISSION.search(line.text)
    return there == line.text or (cut is not None and there.startswith(line.text[: cut.start()]))
