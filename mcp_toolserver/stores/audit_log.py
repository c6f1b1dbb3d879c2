"""Writes one entry per call into the log shared by all servers with this state folder.

An entry is written at once, under a lock; only closing the log waits for the disk. If an entry cannot be
written, the call's result is withheld, the entry waits in memory, and no further call runs until it is
written. No call goes unrecorded because the disk is full.
"""

import hashlib
import json
import logging
import os
import re
import secrets
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain

import anyio
from pydantic import JsonValue
from pydantic_core import to_json

from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.errors import SettingsError
from mcp_toolserver.pipeline.call_record import CallRecord
from mcp_toolserver.stores.audit_chain import (
    FOLDER,
    HEAD,
    HEAD_BYTES,
    KEPT_FILES,
    ChainHead,
    digest,
    file_name,
    file_numbers,
)
from mcp_toolserver.stores.disk import free_bytes, preallocate, preallocated_bytes, sync
from mcp_toolserver.stores.file_lock import (
    LOCK_RETRY_SECONDS,
    LOCK_TIMEOUT_SECONDS,
    lock_timeout_error,
    locked,
    try_lock,
    unlock,
)
from mcp_toolserver.stores.state_dir import open_private
from mcp_toolserver.text.argument_cleanup import refusal
from mcp_toolserver.text.redact_secrets import redacted
from mcp_toolserver.text.timestamps import utc

Fields = dict[str, JsonValue]

_NAME = 128

_HANDLE = re.compile(r"\b((?:[a-z]+_)?[0-9a-f]{7})[0-9a-f]{9,}\b")
"""What whoever knows it may use, such as the id of a schedule: the log has its start."""

_ABOUT = 500
"""Characters in which secrets are looked for before the text is cut to its final length."""

_RULE = 1_000


@dataclass(frozen=True, kw_only=True)
class AuditContext:
    """What all entries of one server share."""

    mode: str
    layers: Mapping[Capability, tuple[str, ...]]
    """The enforcement layers of each capability."""
    values: bool = False
    """Whether entries contain the arguments, with secrets redacted."""
    file_bytes: int = 16 << 20
    """Size at which a new file begins."""
    files: int = KEPT_FILES
    """How many files are kept."""
    server: str = field(default_factory=lambda: secrets.token_hex(8))
    """Identifies a server among those that share the log."""


log = logging.getLogger(__name__)

_OPEN_HEAD = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_MIN_FREE_BYTES = 1 << 20
"""Bytes that must be free on the disk, or reserved for the log, before a call may run."""

_PREALLOCATED_BYTES = 4 << 20
"""Bytes reserved for the log at a time, again after half are used, so that a full disk does not block the
next entries."""


class AuditLog:
    """The log, open for writing. Implements `Recorder`."""

    def __init__(self, state: str, context: AuditContext) -> None:
        """Open the log in the state folder `state`, and check that it is writable.

        Raises:
            SettingsError: it is not.
        """
        self._context = context
        self._folder = self._head = self._file = -1
        self._number = 0
        self._reserved_to = 0
        """Disk space is reserved up to this offset of the file."""
        self._known = (b"", ChainHead())
        """The head as last read or written."""
        self._running: set[CallRecord] = set()
        self._waiting: deque[Fields] = deque()
        """Entries of ended calls that are not written yet."""
        self._written = 0
        """Number of entries this server has written."""
        self._attempts = anyio.Lock()
        """Held by the task that waits for the log's file lock."""
        self._refused = 0
        """Calls refused because the log was not writable."""
        self._is_failing = False
        try:
            os.makedirs(state, mode=0o700, exist_ok=True)
            self._folder = open_private(f"{state}/{FOLDER}")
            self._head = os.open(HEAD, _OPEN_HEAD, 0o600, dir_fd=self._folder)
            with locked(self._head):
                self._use_file(self._current_head().file)
        except OSError as error:
            self.close()
            what = f"the audit log in {state}/{FOLDER} cannot be written: {error.strerror or error}"
            raise SettingsError(f"{what}; choose another --state-dir") from None

    async def begin(self, call: CallRecord) -> str | None:
        try:
            if self._waiting:
                await self._write_up_to(self._written + len(self._waiting), shield=False)
            self._check_free_space()
        except OSError as error:
            self._refused += 1
            return (
                f"The audit log of this server cannot be written ({self._reason(error)}), and calls are not "
                "run unrecorded. The operator has to free space in the state folder."
            )
        self._running.add(call)
        return None

    async def end(self, call: CallRecord) -> str | None:
        """Write the entry. `close` has already written calls that outlive it.

        This waits while another process holds the log's lock, even if the call is cancelled, because nobody
        else would write its entry before the next call.
        """
        if call not in self._running:
            return None
        self._running.remove(call)
        self._waiting.append(entry_fields(call, self._context))
        try:
            await self._write_up_to(self._written + len(self._waiting), shield=True)
        except OSError as error:
            return (
                f"The call has ended, but could not be written to the audit log ({self._reason(error)}), so "
                "its result is withheld. Its changes remain. The operator has to free space in the state "
                "folder; no call runs until then."
            )
        self._is_failing = False
        return None

    def add(self, fields: Fields) -> bool:
        """Write an entry that is not of a call: at once, which is returned, or else before the next call."""
        shared: Fields = {"time": utc(time.time_ns() // 10**6), "server": self._context.server}
        self._waiting.append({**shared, **fields})
        with suppress(OSError):
            return self._is_written(self._written + len(self._waiting))
        return False

    def close(self) -> None:
        """Write running calls as cancelled and flush everything to disk; further calls do nothing."""
        if self._folder < 0:
            return
        self._waiting.extend(entry_fields(call, self._context) for call in self._running)
        self._running.clear()
        if self._waiting:
            with suppress(OSError), locked(self._head):
                self._write()
        for descriptor in (self._file, self._head):
            if descriptor >= 0:
                with suppress(OSError):
                    sync(descriptor)
                os.close(descriptor)
        os.close(self._folder)
        self._file = self._head = self._folder = -1

    def _reason(self, error: OSError) -> str:
        reason = error.strerror or "it is in use"
        if not self._is_failing:
            log.error("the audit log cannot be written: %s; no call runs until it can", reason)
        self._is_failing = True
        return reason

    async def _write_up_to(self, number: int, *, shield: bool) -> None:
        """Write waiting entries in order, at least up to entry `number` of this server.

        It usually neither waits nor yields to other tasks. `shield` delays cancellation.

        Raises:
            OSError: the entry cannot be written; it waits for the next attempt.
        """
        if self._is_written(number):
            return
        with anyio.move_on_after(LOCK_TIMEOUT_SECONDS, shield=shield):
            # One task retries and also writes the entries of those waiting behind it.
            async with self._attempts:
                while not self._is_written(number):  # noqa: ASYNC110  no event tells of a released file lock
                    await anyio.sleep(LOCK_RETRY_SECONDS)
        if self._written < number:
            raise lock_timeout_error()

    def _is_written(self, number: int) -> bool:
        """Write waiting entries unless another process holds the lock; return whether entry `number` is
        written.

        Raises:
            OSError: that entry cannot be written. Errors of later entries are left to their callers.
        """
        if self._written >= number:
            return True
        if self._folder < 0:
            raise OSError(None, "the server is ending")
        if not try_lock(self._head):
            return False
        try:
            self._write()
        except OSError:
            if self._written < number:
                raise
        finally:
            unlock(self._head)
        return True

    def _write(self) -> None:
        """Write waiting entries in order. The caller holds the lock."""
        head = self._current_head()
        while self._waiting:
            head = self._append(head, self._waiting[0])
            self._set_head(head)
            self._waiting.popleft()
            self._written += 1
            self._refused = 0

    def _append(self, head: ChainHead, entry: Fields) -> ChainHead:
        """Append an entry, all of it or nothing, and return the new head."""
        size = self._use_file(head.file)
        if head.size and head.size >= self._context.file_bytes:
            head = self._rotate(head)
            size = self._use_file(head.file)
        torn = size - head.size
        if torn > 0:
            # A killed server left an incomplete line. It stays, and the new entry starts a new line.
            entry = {**entry, "torn": torn + 1}
        if self._refused:
            entry = {**entry, "unrecorded": self._refused}
        text = encode_entry({"n": head.lines + 1, **entry, "prev": head.hash})
        data = (b"\n" if torn > 0 else b"") + text + b"\n"
        if os.write(self._file, data) < len(data):
            with suppress(OSError):
                os.ftruncate(self._file, size)
            raise OSError(None, "there is no room for a whole line")
        self._reserve(size + len(data))
        return ChainHead(file=head.file, size=size + len(data), lines=head.lines + 1, hash=digest(text))

    def _check_free_space(self) -> None:
        """Raises: OSError: the disk is too full for the next entries."""
        free = free_bytes(self._folder)
        is_full = free is not None and free < _MIN_FREE_BYTES
        if is_full and preallocated_bytes(self._file) < _MIN_FREE_BYTES:
            raise OSError(None, "the disk is full")

    def _reserve(self, size: int) -> None:
        """Reserve space after byte `size`, if the file system supports it."""
        if size + _PREALLOCATED_BYTES // 2 > self._reserved_to and preallocate(
            self._file, size, _PREALLOCATED_BYTES
        ):
            self._reserved_to = size + _PREALLOCATED_BYTES

    def _use_file(self, number: int) -> int:
        """Open the file with this number and return its size. A file removed by others is created again."""
        if self._number == number:
            status = os.fstat(self._file)
            if status.st_nlink:
                return status.st_size
        file = os.open(file_name(number), _OPEN_FILE, 0o600, dir_fd=self._folder)
        if self._file >= 0:
            os.close(self._file)
        self._file, self._number, self._reserved_to = file, number, 0
        size = os.fstat(file).st_size
        self._reserve(size)
        return size

    def _rotate(self, head: ChainHead) -> ChainHead:
        """Start a new file and remove the oldest ones."""
        # Return unused reserved space.
        os.ftruncate(self._file, os.fstat(self._file).st_size)
        for number in file_numbers(self._folder):
            if number <= head.file + 1 - self._context.files:
                os.unlink(file_name(number), dir_fd=self._folder)
        return replace(head, file=head.file + 1, size=0)

    def _current_head(self) -> ChainHead:
        """Return the head left by the last writer; if it is lost, start a new log in a new file."""
        data = os.pread(self._head, HEAD_BYTES, 0)
        if data == self._known[0] and data:
            return self._known[1]
        head = ChainHead.decode(data)
        if head is None:
            numbers = file_numbers(self._folder)
            if data or numbers:
                log.warning("the head of the audit log was lost; see `mcp-toolserver log --verify`")
            head = ChainHead(file=numbers[-1] + 1 if numbers else 1)
            self._set_head(head)
        else:
            self._known = (data, head)
        return head

    def _set_head(self, head: ChainHead) -> None:
        data = head.encode()
        if os.pwrite(self._head, data, 0) < len(data):
            raise OSError(None, "there is no room for the head")
        self._known = (data, head)


def entry_fields(call: CallRecord, context: AuditContext) -> Fields:
    """Return the entry of a call, without number and hash."""
    text = call.text.encode(errors="surrogatepass")
    layers = [names for need, names in context.layers.items() if need in call.needs]
    entry: Fields = {
        "time": utc(time.time_ns() // 10**6),
        "call": call.id,
        "parent": call.parent_id or None,
        "server": context.server,
        "user": call.user or None,
        "session": call.session[:_NAME],
        "tool": call.tool,
        "name": call.name[:_NAME],
        "about": str(redacted(_HANDLE.sub(r"\1…", "; ".join(call.about))[:_ABOUT]))[:_NAME],
        "mode": call.mode or context.mode,
        "permission": None if call.permission is None else call.permission.flag,
        "verdict": call.verdict,
        "rule": call.rule[:_RULE],
        "layers": list(dict.fromkeys(chain.from_iterable(layers))),
        "outcome": call.outcome,
        "ms": round(call.duration_ms, 3),
        "bytes": len(text),
        "arguments_sha256": _arguments_digest(call.arguments),
        "result_sha256": hashlib.sha256(text).hexdigest(),
    }
    if context.values:
        sent = dict(call.arguments)
        entry["arguments"] = redacted(sent) if refusal(sent) is None else None
    return entry


def encode_entry(entry: Fields) -> bytes:
    """Encode an entry as JSON in ASCII, so that no name in it can control a terminal."""
    try:
        data = to_json(entry)
    except ValueError:
        # A lone surrogate, which UTF-8 cannot encode.
        data = b"\xff"
    return data if data.isascii() else json.dumps(entry, separators=(",", ":")).encode()


def _arguments_digest(arguments: Mapping[str, JsonValue]) -> str | None:
    """Return the SHA-256 of the arguments as canonical JSON: sorted names, no spaces, UTF-8.

    None if they cannot be encoded; no tool receives such arguments.
    """
    try:
        text = to_json(_in_order(dict(arguments)), inf_nan_mode="constants")
    except (ValueError, RecursionError):
        return None
    return hashlib.sha256(text).hexdigest()


def _in_order(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {name: _in_order(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_in_order(item) for item in value]
    return value
