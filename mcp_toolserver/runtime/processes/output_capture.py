"""What a command printed: its start and its end in memory, all of it in a file when that is too little."""

from dataclasses import dataclass, replace

from mcp_toolserver.capabilities.call_scope import LOCAL, SavedOutput
from mcp_toolserver.capabilities.processes import JobState
from mcp_toolserver.stores.saved_outputs import OutputFile, OutputStore
from mcp_toolserver.text.lines.encoding import decode_page, without_cut_start

WIDEST = 3
"""UTF-8 bytes of U+FFFD, which may stand for a single byte of output."""


@dataclass(frozen=True, kw_only=True)
class CaptureLimits:
    """How much output is kept, in bytes: the start and the end to show, and all of it in a file."""

    head: int = 14_500
    tail: int = 14_500
    file: int = 512 << 20


class Capture:
    """The output of one command, given in pieces to `add`."""

    def __init__(self, sink: OutputStore, limits: CaptureLimits, *, owner: str = LOCAL) -> None:
        self._sink = sink
        self.owner = owner
        """Who may read the file."""
        self._limits = limits
        self._head = bytearray()
        self._tail = bytearray()
        self._file: OutputFile | None = None
        self.unsaved = ""
        """Why the file does not hold all, in words that go on from "because"; empty when it does."""
        self.total = 0
        """Bytes so far, kept or not."""

    @property
    def saved_output(self) -> SavedOutput | None:
        if self._file is None:
            return None
        return SavedOutput(handle=self._file.handle, path=self._file.path, size=self._file.size)

    def add(self, data: bytes) -> None:
        if self.total + len(data) > self._limits.head + self._limits.tail:
            self.keep()
        self._save(data)
        self.total += len(data)
        room = max(self._limits.head - len(self._head), 0)
        self._head += data[:room]
        self._tail += data[max(room, len(data) - self._limits.tail) :]
        del self._tail[: max(len(self._tail) - self._limits.tail, 0)]

    def keep(self) -> None:
        """Have a file from now on, with all that was printed before. Without room for one: nothing."""
        if self._file is not None or self.unsaved:
            return
        try:
            self._file = self._sink.create(self.owner)
        except OSError as error:
            self.unsaved = _reason(error)
            return
        self._save(bytes(self._head + self._tail))

    def read(self, offset: int, limit: int) -> tuple[int, bytes]:
        """At most `limit` bytes from `offset`, or from the first byte after it that was kept."""
        if self._file is not None and offset < self._file.size:
            try:
                return offset, self._file.read(offset, limit)
            except OSError:
                return offset, b""
        if offset < len(self._head):
            return offset, bytes(self._head[offset : offset + limit])
        first = self.total - len(self._tail)
        start = min(max(offset, first), self.total)
        return start, bytes(self._tail[start - first : start - first + limit])

    def excerpt(self, *, last: bool) -> JobState:
        """All of it, or its start and its end when it is too long; `last` when no more will come."""
        most = self._limits.head + self._limits.tail
        kept = bytes(self._head + self._tail)
        if self.total <= most:
            text, used = decode_page(kept, last=last)
            if len(text.encode()) <= most:
                return self.state(text, 0, used)
            self.keep()
            return self._ends(kept, WIDEST, last)
        ends = self._ends(kept, 1, last)
        fits = len(ends.text.encode()) + len(ends.tail.encode()) <= most
        return ends if fits else self._ends(kept, WIDEST, last)

    def _ends(self, kept: bytes, part: int, last: bool) -> JobState:
        """The start and the end, each of one `part`-th of its limit."""
        text, shown = decode_page(kept[: self._limits.head // part], last=False)
        rest = without_cut_start(kept[len(kept) - self._limits.tail // part :])
        tail, used = decode_page(rest, last=last)
        start = self.total - len(rest)
        return replace(self.state(text, 0, start + used), omitted=start - shown, tail=tail)

    def state(self, text: str, start: int, end: int) -> JobState:
        """A job that has printed all this and exited, with `text` as the part from `start` to `end`."""
        return JobState(
            handle="",
            text=text,
            start=start,
            next_offset=end,
            total=self.total,
            running=False,
            exit_status=None,
            reason="exited",
            seconds=0.0,
            saved_output=self.saved_output,
            unsaved=self.unsaved,
        )

    def free_buffers(self) -> None:
        """No more will come, and no excerpt is asked for: what the file holds need not be in memory."""
        if self._file is not None:
            self._file.finish()
            if self._file.size == self.total:
                self._head.clear()
                self._tail.clear()

    def close(self) -> None:
        """Let go of all of it; the file stays where it is."""
        self._head.clear()
        self._tail.clear()
        if self._file is not None:
            self._file.close()

    def _save(self, data: bytes) -> None:
        """Write `data` to the file, as far as there is room: what follows is counted only."""
        if self._file is None or self.unsaved:
            return
        room = self._limits.file - self._file.size
        try:
            self._file.append(data[:room])
        except OSError as error:
            self.unsaved = _reason(error)
        else:
            if room < len(data):
                self.unsaved = f"the output of one command takes {self._limits.file >> 20} MiB at most"


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
