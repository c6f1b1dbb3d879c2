"""Writes one line of every call into the log that all servers with this state folder share.

A line is written at once, under a lock, and is then out of this process; the disk is waited for at the end
only. Where a line cannot be written the call's answer is withheld, the line waits in memory, and no further
call runs until it is written: no call goes unrecorded by running out of room.
"""

import logging
import os
from collections import deque
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Self

from mcp_toolserver.errors import SettingsError
from mcp_toolserver.record import Call
from mcp_toolserver.stores.chain import (
    FOLDER,
    HEAD,
    HEAD_BYTES,
    KEPT_FILES,
    Head,
    digest,
    file_name,
    file_numbers,
)
from mcp_toolserver.stores.line import Facts, Fields, fields, line
from mcp_toolserver.stores.lock import FileLock

log = logging.getLogger(__name__)

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_HEAD = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_ROOM = 1 << 20
"""Bytes that must be free on the disk before a call may run."""


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """How much of the log is kept."""

    file_bytes: int = 16 << 20
    files: int = KEPT_FILES


class Audit:
    """The log, open for writing. Implements `Recorder`."""

    def __init__(self, folder: int, facts: Facts, keeping: Keeping) -> None:
        self._folder = folder
        self._facts = facts
        self._keeping = keeping
        self._head = os.open(HEAD, _OPEN_HEAD, 0o600, dir_fd=folder)
        self._lock = FileLock(self._head)
        self._file = -1
        self._number = 0
        self._known = (b"", Head())
        """The head as it was read or written last."""
        self._running: set[Call] = set()
        self._waiting: deque[Fields] = deque()
        """Calls that ended and could not be written."""
        self._refused = 0
        """Calls that were refused because of that."""
        self._is_failing = False

    @classmethod
    def open(cls, state: str, facts: Facts, keeping: Keeping = Keeping()) -> Self:
        """Open the log in the state folder `state`, and prove that it can be written.

        Raises:
            SettingsError: it cannot.
        """
        try:
            return cls._opened(state, facts, keeping)
        except OSError as error:
            what = f"the audit log in {state}/{FOLDER} cannot be written: {error.strerror or error}"
            raise SettingsError(f"{what}; choose another --state-dir") from None

    @classmethod
    def _opened(cls, state: str, facts: Facts, keeping: Keeping) -> Self:
        with ExitStack() as undo:
            folder = _private_folder(state)
            undo.callback(os.close, folder)
            found = cls(folder, facts, keeping)
            undo.pop_all()
            undo.callback(found.close)
            with found._lock:
                found._use_file(found._current_head().file)
            undo.pop_all()
        return found

    def begin(self, call: Call) -> str | None:
        """See `Recorder.begin`."""
        try:
            self._flush_if_waiting()
            _check_room(self._folder)
        except OSError as error:
            self._refused += 1
            return (
                f"The audit log of this server cannot be written ({self._reason(error)}), and no call runs "
                "unrecorded. Its operator has to make room in the state folder; then calls run again."
            )
        self._running.add(call)
        return None

    def end(self, call: Call) -> str | None:
        """See `Recorder.end`. A call that outlived `close` has its line already."""
        if call not in self._running:
            return None
        self._running.remove(call)
        self._waiting.append(fields(call, self._facts))
        try:
            self._flush()
        except OSError as error:
            return (
                f"The call has ended, but could not be written to the audit log ({self._reason(error)}), so "
                "its answer is withheld. What it changed stays changed. Its operator has to make room in the "
                "state folder; until then no call runs."
            )
        self._is_failing = False
        return None

    def close(self) -> None:
        """Write down what still runs as cancelled, and wait until everything is on the disk; once."""
        if self._folder < 0:
            return
        self._waiting.extend(fields(call, self._facts) for call in self._running)
        self._running.clear()
        with suppress(OSError):
            self._flush_if_waiting()
        for descriptor in (self._file, self._head):
            if descriptor >= 0:
                with suppress(OSError):
                    os.fsync(descriptor)
                os.close(descriptor)
        os.close(self._folder)
        self._file = self._head = self._folder = -1

    def _reason(self, error: OSError) -> str:
        reason = error.strerror or "it is in use"
        if not self._is_failing:
            log.error("the audit log cannot be written: %s; no call runs until it can", reason)
        self._is_failing = True
        return reason

    def _flush_if_waiting(self) -> None:
        if self._waiting:
            self._flush()

    def _flush(self) -> None:
        """Write what waits, in order."""
        with self._lock:
            head = self._current_head()
            while self._waiting:
                head = self._append(head, self._waiting[0])
                self._set_head(head)
                self._waiting.popleft()
                self._refused = 0

    def _append(self, head: Head, told: Fields) -> Head:
        """Write one line behind the last; the head that goes with it."""
        size = self._use_file(head.file)
        if head.size and head.size >= self._keeping.file_bytes:
            head = self._rotated(head)
            size = self._use_file(head.file)
        torn = size - head.size
        if torn > 0:
            # Left by a server that was killed. It is not ours to remove, and our line must start a new one.
            told = {**told, "torn": torn + 1}
        if self._refused:
            told = {**told, "unrecorded": self._refused}
        text = line({"n": head.lines + 1, **told, "prev": head.hash})
        data = (b"\n" if torn > 0 else b"") + text + b"\n"
        self._put(data, size)
        return Head(file=head.file, size=size + len(data), lines=head.lines + 1, hash=digest(text))

    def _put(self, data: bytes, size: int) -> None:
        """All of it or nothing."""
        written = os.write(self._file, data)
        if written < len(data):
            with suppress(OSError):
                os.ftruncate(self._file, size)
            raise OSError(None, "there is no room for a whole line")

    def _use_file(self, number: int) -> int:
        """Have the file with this number open; its size. Removed under our hands, it is made anew."""
        if self._number == number:
            status = os.fstat(self._file)
            if status.st_nlink:
                return status.st_size
        file = os.open(file_name(number), _OPEN_FILE, 0o600, dir_fd=self._folder)
        if self._file >= 0:
            os.close(self._file)
        self._file, self._number = file, number
        return os.fstat(file).st_size

    def _rotated(self, head: Head) -> Head:
        """Go on in a new file, and remove those that are too many."""
        for number in file_numbers(self._folder):
            if number <= head.file + 1 - self._keeping.files:
                os.unlink(file_name(number), dir_fd=self._folder)
        return replace(head, file=head.file + 1, size=0)

    def _current_head(self) -> Head:
        """What the server that wrote last left; a new log, in a file of its own, where the head is lost."""
        data = os.pread(self._head, HEAD_BYTES, 0)
        if data == self._known[0] and data:
            return self._known[1]
        head = Head.unpacked(data)
        if head is None:
            numbers = file_numbers(self._folder)
            if data or numbers:
                log.warning("the head of the audit log was lost; see `mcp-toolserver log --verify`")
            head = Head(file=numbers[-1] + 1 if numbers else 1)
            self._set_head(head)
        else:
            self._known = (data, head)
        return head

    def _set_head(self, head: Head) -> None:
        data = head.packed()
        if os.pwrite(self._head, data, 0) < len(data):
            raise OSError(None, "there is no room for the head")
        self._known = (data, head)


def _private_folder(state: str) -> int:
    """The folder of the log, open; made where it is not there."""
    os.makedirs(state, mode=0o700, exist_ok=True)
    path = f"{state}/{FOLDER}"
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    folder = os.open(path, _OPEN_FOLDER)
    status = os.fstat(folder)
    if status.st_uid != os.geteuid():
        os.close(folder)
        raise PermissionError(None, "it belongs to another user")
    if status.st_mode & 0o077:
        os.fchmod(folder, 0o700)
    return folder


def _check_room(folder: int) -> None:
    """Raises: OSError: the disk is so full that the next lines might not fit."""
    disk = os.fstatvfs(folder)
    # Some network file systems tell no sizes at all.
    if disk.f_blocks and disk.f_bavail * disk.f_frsize < _ROOM:
        raise OSError(None, "the disk is full")
