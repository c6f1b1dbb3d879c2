"""Defines the format of the audit log on disk, and verifies it.

    audit/000001.jsonl, 000002.jsonl, …   one JSON object per line; the oldest files are removed
    audit/head                            the number of lines, where the last one ends, and its SHA-256

Every line contains its number and the SHA-256 of the previous line, across files. A changed, removed, added
or moved line breaks the chain at its position; the head reveals lines cut off at the end. The chain has no
key: anyone who can write these files can recompute every hash. It detects accidents and careless tampering;
to protect against the user, send the entries to another machine.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from pydantic import JsonValue

FOLDER = "audit"
HEAD = "head"
HEAD_BYTES = 256
GENESIS = "0" * 64
KEPT_FILES = 8

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ChainHead:
    """The end of the log."""

    file: int = 1
    """The number of the last file."""
    size: int = 0
    """Bytes of complete lines in the last file."""
    lines: int = 0
    """Lines since the log began, including removed ones."""
    hash: str = GENESIS
    """SHA-256 of the last line, without its line feed."""

    def encode(self) -> bytes:
        """Encode with constant length, so that the head is rewritten in place."""
        text = f'{{"file":{self.file},"size":{self.size},"lines":{self.lines},"hash":"{self.hash}"}}'
        return text.ljust(HEAD_BYTES - 1).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> Self | None:
        """Decode a head; None if the data is invalid."""
        match parse_line(data):
            case {"file": int(file), "size": int(size), "lines": int(lines), "hash": str(digest)}:
                return cls(file=file, size=size, lines=lines, hash=digest)
            case _:
                return None


def parse_line(line: bytes) -> dict[str, JsonValue]:
    """Return the JSON object on a line; empty if there is none."""
    try:
        found: JsonValue = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def digest(line: bytes) -> str:
    """Return the hash that the next line must contain."""
    return hashlib.sha256(line).hexdigest()


def file_name(number: int) -> str:
    """Return the name of a log file."""
    return f"{number:06}.jsonl"


def file_numbers(folder: int | str) -> list[int]:
    """Return the numbers of existing files, oldest first."""
    stems = (name.removesuffix(".jsonl") for name in os.listdir(folder) if name.endswith(".jsonl"))
    return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdecimal())


@dataclass
class VerificationReport:
    """The result of a verification."""

    lines: int = 0
    files: int = 0
    problems: list[str] = field(default_factory=list[str])
    """Evidence of damage or tampering."""
    notes: list[str] = field(default_factory=list[str])
    """Harmless findings: removed old files, a server killed while writing."""


def verify(folder: str, *, kept: int = KEPT_FILES) -> VerificationReport:
    """Verify the log in `folder` as of now; servers may continue to write.

    Raises:
        OSError: the log cannot be read.
    """
    with ExitStack() as closing:
        head, files = _snapshot(folder, closing)
        check = _Verifier()
        _check_files([number for number, _, _ in files], check, kept)
        for number, descriptor, size in files:
            check.file(number, _lines(descriptor, size))
        check.end(head, files[-1][0] if files else 0)
    return VerificationReport(
        lines=check.count,
        files=len(files),
        problems=[text for _, text in sorted(check.problems, key=lambda found: found[0])],
        notes=check.notes,
    )


def _snapshot(folder: str, closing: ExitStack) -> tuple[ChainHead | None, list[tuple[int, int, int]]]:
    """Return a consistent snapshot: the head, and number, descriptor and size of each file."""
    directory = os.open(folder, _READ | os.O_DIRECTORY)
    closing.callback(os.close, directory)
    head: ChainHead | None = None
    with ExitStack() as moment:
        try:
            lock = os.open(HEAD, _READ, dir_fd=directory)
        except FileNotFoundError:
            pass
        else:
            moment.callback(os.close, lock)
            # Platforms with a log have locks; see `file_lock`.
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_SH)
            head = ChainHead.decode(os.pread(lock, HEAD_BYTES, 0))
        files: list[tuple[int, int, int]] = []
        for number in file_numbers(directory):
            descriptor = os.open(file_name(number), _READ, dir_fd=directory)
            closing.callback(os.close, descriptor)
            files.append((number, descriptor, os.fstat(descriptor).st_size))
    return head, files


def _lines(descriptor: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its offset; the last may lack its line feed."""
    start, rest, place = 0, b"", 0
    while place < size and (chunk := os.pread(descriptor, min(_CHUNK, size - place), place)):
        place += len(chunk)
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield start, line + b"\n"
            start += len(line) + 1
    if rest:
        yield start, rest


def _check_files(numbers: Sequence[int], check: "_Verifier", kept: int) -> None:
    if not numbers:
        return
    first = max(1, numbers[-1] - kept + 1)
    for number in sorted(set(range(first, numbers[-1])) - set(numbers)):
        check.problem(number, 0, f"{file_name(number)} is missing")
    if 1 < numbers[0] <= first:
        check.notes.append(f"files before {file_name(numbers[0])} were removed: the log keeps {kept}")


_Link = tuple[int, str]
"""The number and hash of a line."""


class _Verifier:
    """Verifies the chain line by line."""

    def __init__(self) -> None:
        self.count = 0
        self.problems: list[tuple[tuple[int, int], str]] = []
        self.notes: list[str] = []
        self._last: _Link | None = None
        self._ends: dict[int, _Link | None] = {}
        """The line that ends at each offset of the file."""
        self._file = 0
        self._tail: tuple[int, int] | None = None
        """Where an incomplete last line begins."""

    def problem(self, file: int, place: int, text: str) -> None:
        self.problems.append(((file, place), text))

    def file(self, number: int, lines: Iterator[tuple[int, bytes]]) -> None:
        """Verify the lines of a file."""
        self._file, self._ends, self._tail = number, {0: self._last}, None
        for row, (place, line) in enumerate(lines, 1):
            where = f"{file_name(number)} line {row}"
            if line.endswith(b"\n"):
                self._line(where, place, line.removesuffix(b"\n"))
                self._ends[place + len(line)] = self._last
            else:
                self._tail = (number, place)
                self.problem(number, place, f"{where} is not finished")

    def end(self, head: ChainHead | None, last_file: int) -> None:
        """Compare the last line with the head."""
        lines, hash_ = self._last or (0, GENESIS)
        problem = partial(self.problem, last_file + 1, 0)
        if head is None:
            if last_file:
                problem("the head is missing or damaged: nothing tells where the log ends")
        elif lines < head.lines:
            problem(f"the last {_line_count(head.lines - lines)} of the log cut off")
        elif lines > head.lines:
            problem(
                f"{_line_count(lines - head.lines)} after the last one that a server finished: a server was "
                "killed while it wrote, or the lines were added"
            )
        elif head.hash != hash_:
            problem(f"line {lines}, the last one, was changed")
        elif self._tail == (head.file, head.size):
            self._explain(head.file, head.size, None)
            self.notes.append(f"{file_name(head.file)} ends with a piece of a line: a server was killed")

    def _line(self, where: str, place: int, line: bytes) -> None:
        match parse_line(line):
            case {"n": int(number), "prev": str(previous), **rest}:
                torn = rest.get("torn", 0)
            case _:
                self.problem(self._file, place, f"{where} is no line of this log")
                return
        self.count += 1
        if isinstance(torn, int) and torn > 0 and place - torn in self._ends:
            self._last = self._ends[place - torn]
            self._explain(self._file, place - torn, place)
            self.notes.append(f"{where}: the {torn} bytes before it were left by a server that was killed")
        if wrong := self._mismatch(number, previous):
            self.problem(self._file, place, f"{where}: {wrong}")
        if self._last is None or number > self._last[0] or (number, previous) == (1, GENESIS):
            self._last = number, digest(line)

    def _mismatch(self, number: int, previous: str) -> str | None:
        """Return how a line fails to follow the last one; None if it follows."""
        if self._last is None:
            fresh = self._file == 1 or number == 1
            return "the lines before it are missing" if fresh and (number, previous) != (1, GENESIS) else None
        expected = self._last[0] + 1
        if number == 1 and previous == GENESIS:
            return "the log begins anew here: its head was lost, or lines were replaced"
        if number < expected:
            return f"line {number} of the log comes after line {expected - 1}: it was added, doubled or moved"
        if number > expected:
            return f"{_line_count(number - expected)} missing before it"
        return None if previous == self._last[1] else "it or the line before it was changed"

    def _explain(self, file: int, start: int, end: int | None) -> None:
        """Drop the problems reported for this range, which has a harmless explanation."""
        self.problems = [
            (where, text)
            for where, text in self.problems
            if not (where[0] == file and start <= where[1] and (end is None or where[1] < end))
        ]


def _line_count(count: int) -> str:
    return "1 line is" if count == 1 else f"{count} lines are"
