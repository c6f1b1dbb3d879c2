"""Reads a range of lines from a text file of any size, in constant memory.

Lines end at "\n". The whole file is read once, because the result contains the number of lines.
"""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import BinaryIO, Literal

from mcp_toolserver.text.lines.encoding import UTF_8, Encoding, detect, encoding_of_lines, without_cut_start

_CHUNK = 1024 * 1024
_SAMPLE = 64 * 1024
"""Bytes at the start of a file that tell its encoding."""

LineEndings = Literal["LF", "CRLF", "mixed", "none"]


@dataclass(frozen=True, kw_only=True)
class Page:
    """Some lines of a file."""

    lines: tuple[str, ...]
    """Without their line endings."""
    first: int
    """Number of the first of them, from 1."""
    total: int
    """Lines in the file."""
    encoding: str
    line_endings: LineEndings
    """Of the lines of this page."""
    cut_by_bytes: bool
    """Whether more lines were asked for than fit."""
    long_line: tuple[int, int] | None
    """Where the first line is shown to, and its length, both in bytes, if it is not shown whole."""

    @property
    def last(self) -> int:
        """Number of the last line; one less than `first` when there are none."""
        return self.first + len(self.lines) - 1

    @property
    def next_skip(self) -> int | None:
        """Number of lines to skip for the next page; None at the end of the file."""
        return self.last if self.last < self.total else None


def page(file: BinaryIO, *, skip: int, column: int = 0, take: int, max_bytes: int) -> Page:
    """Return the `take` lines after the first `skip`, or as many as fit `max_bytes` when numbered.

    A line counts with its UTF-8 bytes, its number, a tab and a line feed. The first one starts after `column`
    bytes of it; if it is too long alone, it is cut.

    Raises:
        InvalidInput: the file is not text.
    """
    sample = file.read(_SAMPLE)
    encoding = encoding_of_lines(sample, complete=len(sample) < _SAMPLE)
    taken = _Taken(skip=skip, column=column, take=take, room=max_bytes)
    chunks = chain((sample,), iter(lambda: file.read(_CHUNK), b""))
    for chunk in _utf_8(encoding, chunks):
        taken.feed(chunk)
    taken.finish()
    raw = b"\n".join(taken.lines)
    shown, text = _decoded(raw, encoding)
    lines = text.split("\n") if taken.lines else []
    if "\r" in text:
        lines = [line.removesuffix("\r") for line in lines]
    return Page(
        lines=tuple(lines),
        first=skip + 1,
        total=taken.total,
        encoding=shown.name,
        line_endings=_line_endings(taken, raw),
        cut_by_bytes=taken.is_full,
        long_line=taken.long_line,
    )


def _utf_8(encoding: Encoding, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Convert chunks to UTF-8, in which no other character contains the byte of a line feed."""
    rest = encoding.bom
    decoder = codecs.getincrementaldecoder(encoding.codec)(errors="replace")
    for chunk in chunks:
        body, rest = chunk.removeprefix(rest), b""
        yield body if encoding.codec == UTF_8.codec else decoder.decode(body).encode()
    yield decoder.decode(b"", final=True).encode()


def _decoded(raw: bytes, encoding: Encoding) -> tuple[Encoding, str]:
    """Decode lines; a file whose start looked like UTF-8 may turn out to have another encoding."""
    try:
        return encoding, raw.decode()
    except UnicodeDecodeError:
        other = detect(raw) or encoding
        return other, raw.decode(other.codec, errors="replace")


def _line_endings(taken: "_Taken", raw: bytes) -> LineEndings:
    if not taken.ended:
        return "none"
    if b"\r" not in raw:
        return "LF"
    crlf = sum(line.endswith(b"\r") for line in taken.lines[: taken.ended])
    return "LF" if crlf == 0 else "CRLF" if crlf == taken.ended else "mixed"


class _Taken:
    """Collects lines out of a stream of UTF-8 in three stages: skip, take, and only count."""

    def __init__(self, *, skip: int, column: int, take: int, room: int) -> None:
        self.lines: list[bytes] = []
        self.ended = 0
        """How many of `lines` end with a line feed."""
        self.is_full = False
        self.long_line: tuple[int, int] | None = None
        self._skip = skip
        self._column = column
        self._take = take
        self._room = room
        self._line_feeds = 0
        self._open = bytearray()
        """The start of the line that has not ended yet, no longer than could be used."""
        self._open_length = 0
        self._ends_open = False

    @property
    def total(self) -> int:
        return self._line_feeds + self._ends_open

    def feed(self, chunk: bytes) -> None:
        if not chunk:
            return
        missing = max(0, self._skip - self._line_feeds)
        wanted = self._take - len(self.lines)
        found = chunk.count(b"\n")
        self._line_feeds += found
        self._ends_open = not chunk.endswith(b"\n")
        if found < missing or not self._wants_more():
            return
        *whole, rest = chunk.split(b"\n", missing + wanted)[missing:]
        if whole and (self._open_length or self._is_inside):
            self._end_line(whole.pop(0))
        if not self._take_all(whole):
            for line in whole:
                self._end_line(line)
        if self._wants_more():
            self._extend(rest)

    def finish(self) -> None:
        if self._ends_open and self._line_feeds >= self._skip and self._wants_more():
            self._close(ended=False)

    def _wants_more(self) -> bool:
        return len(self.lines) < self._take and not self.is_full

    def _take_all(self, lines: list[bytes]) -> bool:
        """Take many lines at once, many times faster than one by one; false when not all of them fit."""
        first = self._skip + len(self.lines) + 1
        last = first + len(lines) - 1
        digits = sum(max(0, last - max(first, 10**power) + 1) for power in range(len(str(last))))
        size = sum(map(len, lines)) + digits + 2 * len(lines)
        if self.is_full or size > self._room or self._is_inside:
            return False
        self.lines += lines
        self.ended += len(lines)
        self._room -= size
        return True

    def _end_line(self, end: bytes) -> None:
        if not self.is_full:
            self._extend(end)
            self._close(ended=True)

    @property
    def _is_inside(self) -> bool:
        """Whether the next line is to be shown from its column on."""
        return bool(self._column) and not self.lines

    def _extend(self, part: bytes) -> None:
        start = max(0, self._column - self._open_length) if self._is_inside else 0
        self._open_length += len(part)
        self._open += part[start : start + max(0, self._room + 1 - len(self._open))]

    def _close(self, *, ended: bool) -> None:
        """Take the open line if there is room."""
        room = self._room - len(str(self._skip + len(self.lines) + 1)) - 2
        start = min(self._column, self._open_length) if self._is_inside else 0
        line = bytes(self._open)
        fits = self._open_length - start <= room
        if not fits:
            self.is_full = True
            line = _head(line, room)
        if not self.lines and (start or not fits):
            self.long_line = start + len(line), self._open_length
        if fits or not self.lines:
            self._room = room - len(line)
            self.ended += fits and ended
            self.lines.append(without_cut_start(line) if start else line)
        self._open.clear()
        self._open_length = 0


def _head(line: bytes, limit: int) -> bytes:
    """Return at most `limit` bytes that do not end within a character."""
    end = limit
    while end > max(0, limit - 3) and line[end] & 0xC0 == 0x80:
        end -= 1
    return line[:end]
