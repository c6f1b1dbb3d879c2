"""Remembers which files each session has read or written, and keeps the contents that its calls replace.

Kept contents lie in a private folder per session in the state folder. A user finds them there after the
session; the next server enforces `undo-size` and `undo-days`.
"""

import errno
import os
import re
import secrets
import shutil
import stat
import weakref
from collections import OrderedDict, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import RLock

from mcp_toolserver.capabilities.files import Previous
from mcp_toolserver.errors import NotFound
from mcp_toolserver.stores.disk import ENTRY_BYTES, MIB, free_bytes, sync, too_little_stays
from mcp_toolserver.stores.state_dir import CREATE, OPEN_FOLDER, READ, private_folder
from mcp_toolserver.text.file_names import lies_in

FOLDER = "undo"

MAX_CHANGED = 100
"""Changed files of one session that are named."""

_FILES = 4096
"""Files of one session that count as read or written; beyond it, the first ones are forgotten."""

OWNERS = 256
"""Largest number of sessions; beyond it, the first one is forgotten."""

_FileId = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class HistoryLimits:
    """Limits for kept contents."""

    total: int = 256 * MIB
    """Bytes of all sessions together; 0 keeps nothing."""
    of_owner: int = 64 * MIB
    """Bytes of one session."""
    count: int = 200
    """Contents of one session."""
    reserve: int = 64 * MIB
    """Bytes that stay free on the state folder's file system."""


@dataclass(frozen=True, kw_only=True)
class _Kept:
    """A kept content."""

    path: str
    """Of the file whose content it was; absolute."""
    name: str
    """Of the file in the session's folder."""
    size: int
    """Bytes."""
    is_own: bool
    """Whether the session wrote the content itself; such contents are removed first."""

    @property
    def cost(self) -> int:
        return self.size + ENTRY_BYTES


class FileHistories:
    """The histories of all sessions, by owner. Creates nothing before the first content is kept."""

    def __init__(self, state_dir: str, limits: HistoryLimits | None = None) -> None:
        self.limits = limits or HistoryLimits()
        self.lock = RLock()
        """Event loop and worker threads change the same records."""
        self._state_dir = state_dir
        self._owners: OrderedDict[str, FileHistory] = OrderedDict()
        self._ended: deque[tuple[str, int]] = deque()
        """Folder and size of the sessions that have ended; oldest first."""
        self._ended_size = 0

    def of(self, owner: str) -> "FileHistory":
        """Return the history of the owner's session."""
        with self.lock:
            if owner not in self._owners:
                while len(self._owners) >= OWNERS:
                    self.forget(next(iter(self._owners)))
                self._owners[owner] = FileHistory(self)
            return self._owners[owner]

    def folder(self, owner: str) -> str | None:
        """Return the absolute path of the folder with the owner's kept contents, if it exists."""
        with self.lock:
            history = self._owners.get(owner)
            return history.folder if history else None

    def changed(self, owner: str) -> tuple[str, ...]:
        """Return the absolute paths of the first files that the owner's session has changed."""
        with self.lock:
            history = self._owners.get(owner)
            return tuple(history.changed) if history else ()

    def forget(self, owner: str) -> None:
        """End the session of `owner`: nobody can restore its contents by a call any more."""
        with self.lock:
            history = self._owners.pop(owner, None)
            if history is not None and history.folder is not None:
                self._ended.append((history.folder, history.size))
                self._ended_size += history.size

    def make_folder(self) -> tuple[str, int]:
        """Create a private folder; return its absolute path and an open descriptor.

        Raises:
            OSError: the state folder is not writable or not private.
        """
        parent = private_folder(self._state_dir, FOLDER)
        name = secrets.token_hex(6)
        parent_fd = os.open(parent, OPEN_FOLDER)
        try:
            os.mkdir(name, 0o700, dir_fd=parent_fd)
            descriptor = os.open(name, OPEN_FOLDER, dir_fd=parent_fd)
            sync(parent_fd)
        finally:
            os.close(parent_fd)
        return f"{parent}/{name}", descriptor

    def make_room(self, wanted: int) -> None:
        """Remove contents until `wanted` more bytes, at most the total, are within it: first those of ended
        sessions, then those of the session that has most."""
        while self._ended_size + sum(one.size for one in self._owners.values()) + wanted > self.limits.total:
            if self._ended:
                folder, size = self._ended.popleft()
                self._ended_size -= size
                shutil.rmtree(folder, ignore_errors=True)
            else:
                max(self._owners.values(), key=lambda one: one.size).remove_next()


class FileHistory:
    """The history of one session."""

    def __init__(self, histories: FileHistories) -> None:
        self._histories = histories
        self._known: OrderedDict[_FileId, bool] = OrderedDict()
        """Contents that the session has read, or written itself (True)."""
        self.changed: dict[str, None] = {}
        """Absolute paths of the first `MAX_CHANGED` files that the session has changed."""
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        """Kept contents by handle, oldest first."""
        self._descriptor = -1
        self.folder: str | None = None
        """Absolute; None if nothing was kept yet."""
        self.size = 0
        """Bytes of all kept contents."""

    def saw(self, file: _FileId) -> None:
        """Record that the session has read this content."""
        self._learn(file, self._known.get(file, False))

    def wrote(self, file: _FileId) -> None:
        """Record that the session has written this content."""
        self._learn(file, True)

    def knows(self, file: _FileId) -> bool:
        """Whether the session has read or written this content."""
        return file in self._known

    def add_changed(self, *paths: str) -> None:
        """Record that the session has changed these files."""
        with self._histories.lock:
            for path in paths:
                if len(self.changed) < MAX_CHANGED:
                    self.changed[path] = None

    def keep(self, path: str, file: _FileId, content: bytes) -> Previous:
        """Store `content`, the file at the absolute `path`; it is on disk when this returns, unless the
        session wrote it itself.

        Raises:
            OSError: it cannot be stored; `strerror` says why.
        """
        handle = secrets.token_hex(6)
        is_own = self._known.get(file, False)
        kept = _Kept(path=path, name=f"{handle}-{_file_name(path)}", size=len(content), is_own=is_own)
        folder = self._add(handle, kept)
        try:
            self._store(kept, content)
        except BaseException:
            self.drop(handle)
            raise
        if handle not in self._kept:
            self._unlink(kept)
            raise OSError(errno.EDQUOT, "other calls needed the room that undo may take")
        return Previous(handle=handle, path=f"{folder}/{kept.name}")

    def has_outside(self, roots: Sequence[str]) -> bool:
        """Return whether contents of files outside `roots` are kept."""
        with self._histories.lock:
            return any(not any(lies_in(root, kept.path) for root in roots) for kept in self._kept.values())

    def content(self, handle: str, path: str) -> bytes:
        """Return the content kept under `handle`, that of the file at the absolute `path`.

        Raises:
            NotFound: there is none, or it was the content of another file than `path`.
        """
        gone = NotFound(
            f"What was kept under '{handle}' was removed or changed in the state folder by somebody else."
        )
        with self._histories.lock:
            kept = self._kept.get(handle)
            if kept is None:
                raise NotFound(
                    f"Nothing is kept under '{handle}' in this session. Contents are kept until the session "
                    "ends or too many follow; the oldest go first."
                )
            if kept.path != path:
                raise NotFound(
                    f"What is kept under '{handle}' is the content of '{kept.path}'. Restore that path."
                )
            try:
                descriptor = os.open(kept.name, READ, dir_fd=self._descriptor)
            except OSError:
                raise gone from None
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise gone
            content = file.read(kept.size + 1)
        if len(content) != kept.size:
            raise gone
        return content

    def remove_next(self) -> None:
        """Remove the oldest content that the session wrote itself, or else the oldest."""
        own = next((handle for handle, kept in self._kept.items() if kept.is_own), None)
        self.drop(own or next(iter(self._kept)))

    def _learn(self, file: _FileId, is_own: bool) -> None:
        with self._histories.lock:
            self._known[file] = is_own
            self._known.move_to_end(file)
            if len(self._known) > _FILES:
                self._known.popitem(last=False)

    def _add(self, handle: str, kept: _Kept) -> str:
        """Count `kept`, after older contents have made room; return the absolute path of the folder."""
        limits = self._histories.limits
        with self._histories.lock:
            if not limits.total:
                raise OSError(errno.EDQUOT, "the operator has switched undo off (undo-size = 0)")
            if kept.cost > min(limits.of_owner, limits.total):
                raise OSError(errno.EFBIG, f"its {kept.size} bytes are more than undo may take")
            if self.folder is None:
                self.folder, self._descriptor = self._histories.make_folder()
                # Not before the last call of the session is done with it.
                weakref.finalize(self, os.close, self._descriptor)
            free = free_bytes(self._descriptor)
            if free is not None and free - kept.size < limits.reserve:
                raise OSError(errno.ENOSPC, too_little_stays(limits.reserve))
            while self.size + kept.cost > limits.of_owner or len(self._kept) >= limits.count:
                self.remove_next()
            self._histories.make_room(kept.cost)
            self._kept[handle] = kept
            self.size += kept.cost
            return self.folder

    def _store(self, kept: _Kept, content: bytes) -> None:
        descriptor = os.open(kept.name, CREATE, 0o600, dir_fd=self._descriptor)
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if not kept.is_own:
                sync(descriptor)
        finally:
            os.close(descriptor)
        if not kept.is_own:
            sync(self._descriptor)

    def drop(self, handle: str) -> None:
        """Remove what is kept under `handle`."""
        with self._histories.lock:
            kept = self._kept.pop(handle, None)
            if kept is None:
                return
            self.size -= kept.cost
            self._unlink(kept)

    def _unlink(self, kept: _Kept) -> None:
        with suppress(OSError):
            os.unlink(kept.name, dir_fd=self._descriptor)


def _file_name(path: str) -> str:
    """A name for a copy of the file at `path`, with its suffix, of at most 60 ASCII characters."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", path.rpartition("/")[2])[-60:]
