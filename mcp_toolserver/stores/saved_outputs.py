"""Stores truncated output on disk, per owner, until the server exits.

Total size and age are limited, and the state folder's file system keeps a reserve for the audit log. The
oldest outputs are removed first; outputs still being written are not removed.

Each server holds a lock on its folder. A killed server leaves its folder unlocked, and the next server
removes it.
"""

import errno
import os
import re
import secrets
import shutil
import stat
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from threading import RLock

from anyio import to_thread

from mcp_toolserver.capabilities.call_scope import REMOVED, SavedOutput
from mcp_toolserver.errors import NotFound
from mcp_toolserver.stores.disk import ENTRY_BYTES, MIB, free_bytes, too_little_stays
from mcp_toolserver.stores.file_lock import is_locked, try_lock
from mcp_toolserver.stores.state_dir import CREATE, READ, open_owned, open_private

_SUFFIX = ".txt"

OWNERS = 256
"""Largest number of owners; beyond it, all outputs of the first owner are removed."""

_NAME = re.compile(r"[0-9a-f]{32}")

_NEW = ".new-"
"""Name prefix of a session folder until its lock is held, so that nobody removes it as abandoned."""

_ABANDONED_SECONDS = 60.0
"""Locking a new folder never takes this long."""


@dataclass(frozen=True, kw_only=True)
class SessionFolder:
    """An open and locked session folder."""

    outputs: int
    """Descriptor of the folder for saved outputs."""
    path: str
    """Absolute path of the folder for saved outputs."""
    closing: ExitStack
    """Removes the folder with its content."""


@dataclass(frozen=True, kw_only=True)
class OutputLimits:
    """Limits for saved outputs."""

    total: int = 1024 * MIB
    """Total bytes of saved outputs."""
    seconds: float = 24 * 3600.0
    """How long an output is kept after its last write."""
    reserve: int = 64 * MIB
    """Bytes that stay free on the state folder's file system."""


class OutputFile:
    """A saved output, open for appending and reading."""

    def __init__(self, outputs: "OutputStore", owner: str, path: str, descriptor: int) -> None:
        self._outputs = outputs
        self._descriptor = descriptor
        self.owner = owner
        self.path = path
        """Absolute."""
        folder, self.handle = path.removesuffix(_SUFFIX).rsplit("/", 2)[1:]
        self.name = f"{folder}/{self.handle}{_SUFFIX}"
        """Path inside the folder for saved outputs."""
        self.size = 0
        """Bytes written."""
        self.finished: float | None = None
        """When writing ended, on the store's clock; None before."""

    def append(self, data: bytes) -> None:
        """Append `data`; on failure, as much of it as fits.

        Raises:
            OSError: not everything was written; `strerror` says why.
        """
        size, why = self._outputs.make_room(len(data))
        rest = memoryview(data)[:size]
        while rest:
            written = os.write(self._descriptor, rest)
            self.size += written
            self._outputs.grown(self, written)
            rest = rest[written:]
        if size < len(data):
            raise OSError(errno.ENOSPC, why)

    def read(self, offset: int, limit: int) -> bytes:
        """Return at most `limit` bytes from byte `offset`.

        Raises:
            NotFound: the output was removed.
            OSError: the file cannot be read.
        """
        if self._descriptor < 0:
            raise NotFound(f"The output of this command was removed. {REMOVED}")
        return os.pread(self._descriptor, min(limit, self.size - offset), offset)

    def finish(self) -> None:
        """End writing; the output may be removed from now on."""
        self._outputs.finish(self)

    def close(self) -> None:
        """End writing and close the file, which stays on disk."""
        self.finish()
        self.release()

    def release(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class OutputStore:
    """Saved outputs by unguessable handle, each for its owner only. Creates nothing before the first output.

    `now` is a monotonic clock in seconds.
    """

    def __init__(
        self,
        state_dir: str,
        bounds: OutputLimits | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state_dir = os.path.abspath(state_dir)
        self._bounds = bounds or OutputLimits()
        self._now = now
        self._session: SessionFolder | None = None
        self._closed = False
        # The event loop and worker threads write outputs.
        self._lock = RLock()
        self._folders: OrderedDict[str, str] = OrderedDict()
        """Folder name of each owner, oldest first."""
        self._saved: OrderedDict[str, OutputFile] = OrderedDict()
        """Outputs by handle; finished ones in the order of finishing."""
        self._total = 0

    def folder(self, owner: str) -> str | None:
        """Return the absolute path of the owner's folder, if it exists."""
        with self._lock:
            if self._session is None or owner not in self._folders:
                return None
            self.expire()
            return f"{self._session.path}/{self._folders[owner]}"

    def create(self, owner: str) -> OutputFile:
        """Create an empty output for `owner`; the caller closes it.

        Raises:
            OSError: there is no space, or the state folder is not writable or not private.
        """
        with self._lock:
            session = self._open_session()
            size, why = self.make_room(1)
            if not size:
                raise OSError(errno.ENOSPC, why)
            name = f"{self._folder_of(session, owner)}/{secrets.token_hex(16)}{_SUFFIX}"
            fd = os.open(name, CREATE, 0o600, dir_fd=session.outputs)
            made = OutputFile(self, owner, f"{session.path}/{name}", fd)
            self._saved[made.handle] = made
            self._total += ENTRY_BYTES
            return made

    async def save(self, text: str, owner: str) -> SavedOutput:
        """Save all of `text` for `owner`, or nothing. Raises: OSError: as for `create`."""
        return await to_thread.run_sync(self._save, text, owner)

    async def read(self, handle: str, owner: str, limit: int) -> bytes:
        """Return the whole text. Raises: NotFound: `owner` has no such output, or it has more than `limit`
        bytes."""
        return await to_thread.run_sync(self._read, handle, owner, limit)

    def forget(self, owner: str) -> None:
        """Remove all outputs of `owner`."""
        with self._lock:
            for saved in [one for one in self._saved.values() if one.owner == owner]:
                self._remove(saved)
            name = self._folders.pop(owner, None)
            if name is not None and self._session is not None:
                shutil.rmtree(name, ignore_errors=True, dir_fd=self._session.outputs)

    def expire(self) -> None:
        """Remove expired outputs."""
        with self._lock:
            while (oldest := self._oldest()) is not None:
                if self._now() - (oldest.finished or 0.0) <= self._bounds.seconds:
                    break
                self._remove(oldest)

    def close(self) -> None:
        """Remove everything and refuse new outputs."""
        with self._lock:
            self._closed = True
            session, self._session = self._session, None
            self._saved.clear()
            self._folders.clear()
        if session is not None:
            session.closing.close()

    def make_room(self, wanted: int) -> tuple[int, str]:
        """Remove the oldest outputs until `wanted` bytes may be written, or none is left to remove.

        Returns:
            How many bytes may be written, and why not more.
        """
        with self._lock:
            self.expire()
            bounds = self._bounds
            while self._total + wanted > bounds.total and (oldest := self._oldest()) is not None:
                self._remove(oldest)
            free = self._free()
            removable = sum(one.size for one in self._saved.values() if one.finished is not None)
            if free < wanted <= free + removable:
                while free < wanted and (oldest := self._oldest()) is not None:
                    self._remove(oldest)
                    free = self._free()
            left = max(bounds.total - self._total, 0)
            if free < wanted and free < left:
                return max(free, 0), too_little_stays(bounds.reserve)
            return min(wanted, left), f"saved outputs take {bounds.total // MIB} MiB at most"

    def grown(self, saved: OutputFile, size: int) -> None:
        """Count `size` bytes written to `saved`."""
        with self._lock:
            if saved.handle in self._saved:
                self._total += size

    def finish(self, saved: OutputFile) -> None:
        with self._lock:
            if saved.finished is None:
                saved.finished = self._now()
                if saved.handle in self._saved:
                    self._saved.move_to_end(saved.handle)

    def _oldest(self) -> OutputFile | None:
        return next((one for one in self._saved.values() if one.finished is not None), None)

    def _free(self) -> int:
        """Return how many bytes may be written before the reserve is used."""
        free = None if self._session is None else free_bytes(self._session.outputs)
        return self._bounds.total if free is None else free - self._bounds.reserve

    def _remove(self, saved: OutputFile) -> None:
        del self._saved[saved.handle]
        self._total -= saved.size + ENTRY_BYTES
        if saved.finished is not None:
            # An open file would still take up space.
            saved.release()
        if self._session is not None:
            with suppress(OSError):
                os.unlink(saved.name, dir_fd=self._session.outputs)

    def _save(self, text: str, owner: str) -> SavedOutput:
        content = text.encode(errors="replace")
        saved = self.create(owner)
        try:
            saved.append(content)
        except OSError:
            with self._lock:
                saved.finish()
                self._remove(saved)
            raise
        saved.close()
        return SavedOutput(handle=saved.handle, path=saved.path, size=len(content))

    def _read(self, handle: str, owner: str, limit: int) -> bytes:
        # The same message for unknown, removed and foreign handles.
        missing = NotFound(f"You have no such output. {REMOVED}")
        with self._lock:
            self.expire()
            saved = self._saved.get(handle)
            if saved is None or saved.owner != owner:
                raise missing
            session = self._open_session()
            try:
                fd = os.open(saved.name, READ, dir_fd=session.outputs)
            except OSError:
                raise missing from None
        with os.fdopen(fd, "rb") as file:
            content = file.read(limit + 1)
        if len(content) > limit:
            raise NotFound("The output is too long to read at once. Read it in parts with read_file.")
        return content

    def _folder_of(self, session: SessionFolder, owner: str) -> str:
        """Return the folder name of an owner, creating the folder if needed."""
        if owner not in self._folders:
            while len(self._folders) >= OWNERS:
                self.forget(next(iter(self._folders)))
            name = secrets.token_hex(16)
            os.mkdir(name, 0o700, dir_fd=session.outputs)
            self._folders[owner] = name
        return self._folders[owner]

    def _open_session(self) -> SessionFolder:
        if self._closed:
            raise OSError(errno.EBADF, "the outputs are closed")
        if self._session is None:
            self._session = start_session(self._state_dir)
        return self._session


def start_session(state_dir: str) -> SessionFolder:
    """Create a session folder in `state_dir`, an absolute path, and remove those of dead servers.

    Raises:
        OSError: the state folder is not writable or not private.
    """
    with ExitStack() as closing:
        os.makedirs(state_dir, mode=0o700, exist_ok=True)
        closing.callback(os.close, state := open_owned(state_dir))
        closing.callback(os.close, sessions := open_private("sessions", state))
        _sweep(sessions)
        name = secrets.token_hex(16)
        closing.callback(os.close, session := open_private(_NEW + name, sessions))
        closing.callback(os.close, lock := os.open("lock", CREATE, 0o600, dir_fd=session))
        try_lock(lock)
        closing.callback(os.close, outputs := open_private("outputs", session))
        os.rename(_NEW + name, name, src_dir_fd=sessions, dst_dir_fd=sessions)
        closing.callback(shutil.rmtree, name, ignore_errors=True, dir_fd=sessions)
        path = f"{state_dir}/sessions/{name}/outputs"
        return SessionFolder(outputs=outputs, path=path, closing=closing.pop_all())


def _sweep(sessions: int) -> None:
    """Remove the folders of dead servers. Links are neither followed nor removed."""
    for name in os.listdir(sessions):
        with suppress(OSError):
            if _is_abandoned(sessions, name):
                shutil.rmtree(name, ignore_errors=True, dir_fd=sessions)


def _is_abandoned(sessions: int, name: str) -> bool:
    status = os.stat(name, dir_fd=sessions, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        return False
    if name.startswith(_NEW):
        return time.time() - status.st_mtime > _ABANDONED_SECONDS
    # A folder without a lock file was being removed when its server was killed.
    return _NAME.fullmatch(name) is not None and not is_locked(f"{name}/lock", dir_fd=sessions)
