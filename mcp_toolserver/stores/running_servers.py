"""Records which servers use a state folder, and the temporary files of each in the workspace.

Each server holds a lock on its record, which the kernel releases with the process. The record names every
temporary file before it is created, so the remains of a killed server are known by name and folder, not by
age.
"""

import contextlib
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import Callable, Generator, Iterator
from threading import Lock

from mcp_toolserver.stores.file_lock import OPEN_LOCK, is_locked, try_lock
from mcp_toolserver.stores.state_dir import CREATE, private_folder

FOLDER = "running"

_SLOT_BYTES = 4608
"""Bytes for one temporary file: a path of at most 4,095 bytes, a name and two numbers."""

_NAME = re.compile(rb"\.mcp-toolserver-[0-9a-f]{32}\.tmp")
"""Only files with this name are ever removed."""

_RECORD = re.compile(r"([0-9]+)-[0-9a-f]{32}")

Opener = Callable[[str], int | None]
"""Opens the folder with this absolute path, for the caller to close; None if it must not be changed.

Raises:
    OSError: the folder does not exist.
"""


class RunningServer:
    """The record of this process, locked until it ends.

    Raises:
        OSError: the state folder is not writable.
    """

    def __init__(self, state: str) -> None:
        self.folder = private_folder(state, FOLDER)
        self.started = time.time()
        self._path, self._file = _create_record(self.folder, int(self.started))
        self._free: list[int] = []
        self._slots = 0
        # Worker threads write files.
        self._lock = Lock()

    @contextlib.contextmanager
    def temporary(self, folder: int, name: str) -> Generator[None]:
        """Record that the file `name` may exist in the open `folder` until the body ends.

        A failure to write the record is ignored: the file would only remain if this process were killed.
        """
        path = _path_of(folder)
        if path is None:
            yield
            return
        device, inode = (str(number).encode() for number in _identity(folder))
        entry = b"\0".join((name.encode(), device, inode, path)).ljust(_SLOT_BYTES, b"\0")
        with self._lock:
            slot = self._free.pop() if self._free else self._slots
            self._slots = max(self._slots, slot + 1)
        with contextlib.suppress(OSError):
            os.pwrite(self._file, entry, slot * _SLOT_BYTES)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                _clear(self._file, slot)
            with self._lock:
                self._free.append(slot)

    def close(self) -> None:
        """Remove the record, unless it still names a temporary file."""
        with self._lock:
            if len(self._free) == self._slots:
                with contextlib.suppress(OSError):
                    os.unlink(self._path)


def oldest_start(folder: str) -> float:
    """Return the start of the oldest running server in seconds since 1970; infinity if none runs."""
    starts = [
        float(found[1])
        for name in os.listdir(folder)
        if (found := _RECORD.fullmatch(name)) and is_locked(f"{folder}/{name}")
    ]
    return min(starts, default=float("inf"))


def sweep(folder: str, open_folder: Opener) -> int:
    """Remove the temporary files of dead servers in the folders that `open_folder` opens; return how many.

    Files in other folders stay on record for a server that may change them.
    """
    removed = 0
    for name in os.listdir(folder):
        if not _RECORD.fullmatch(name):
            continue
        with contextlib.suppress(FileNotFoundError):
            removed += _sweep_record(f"{folder}/{name}", open_folder)
    return removed


def _sweep_record(path: str, open_folder: Opener) -> int:
    file = os.open(path, OPEN_LOCK)
    try:
        if not try_lock(file):
            return 0
        removed, kept = 0, False
        for slot, name, folder, identity in _entries(file):
            try:
                removed += _remove(name, folder, identity, open_folder)
                _clear(file, slot)
            except PermissionError:
                kept = True
        if not kept:
            os.unlink(path)
        return removed
    finally:
        os.close(file)


def _entries(file: int) -> Iterator[tuple[int, bytes, bytes, tuple[int, int]]]:
    """Slot, name, folder, and device and inode of the folder of each entry; empty and incomplete ones are
    left out."""
    for slot in range(-(-os.fstat(file).st_size // _SLOT_BYTES)):
        match os.pread(file, _SLOT_BYTES, slot * _SLOT_BYTES).split(b"\0", 4):
            case [name, device, inode, folder, *_] if _NAME.fullmatch(name) and device.isdigit():
                yield slot, name, folder, (int(device), int(inode) if inode.isdigit() else -1)
            case _:
                pass


def _remove(name: bytes, path: bytes, identity: tuple[int, int], open_folder: Opener) -> bool:
    """Remove a file; return whether it existed. `identity` is that of its folder, whose path may lead
    elsewhere by now.

    Raises:
        PermissionError: this server may not remove it.
    """
    try:
        folder = open_folder(os.fsdecode(path))
    except FileNotFoundError:
        return False
    if folder is None:
        raise PermissionError
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if _identity(folder) != identity or not stat.S_ISREG(mode):
            return False
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    finally:
        os.close(folder)
    return True


def _clear(file: int, slot: int) -> None:
    os.pwrite(file, b"\0", slot * _SLOT_BYTES)


def _create_record(folder: str, started: int) -> tuple[str, int]:
    """Create and lock a record; retry if another server removed it before it was locked."""
    while True:
        path = f"{folder}/{started}-{secrets.token_hex(16)}"
        file = os.open(path, CREATE, 0o600)
        if try_lock(file) and os.fstat(file).st_nlink:
            return path, file
        os.close(file)


def _identity(folder: int) -> tuple[int, int]:
    status = os.fstat(folder)
    return status.st_dev, status.st_ino


def _path_of(folder: int) -> bytes | None:
    """Return the path of an open folder; None if the system cannot tell."""
    try:
        if sys.platform == "darwin":
            import fcntl

            return fcntl.fcntl(folder, fcntl.F_GETPATH, bytes(1024)).split(b"\0")[0]
        return os.readlink(f"/proc/self/fd/{folder}".encode())
    except (OSError, AttributeError):
        return None
