"""How much room the files of the state folder take and leave, limits for what servers leave there,
preallocation for a file that must be able to grow when the disk is full, and what makes data survive a loss
of power.
"""

import ctypes
import errno
import os
import secrets
import stat
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

_KEEP_SIZE = 1
"""`FALLOC_FL_KEEP_SIZE`: the file size stays the same, so readers and appenders notice nothing."""

_BLOCK_BYTES = 512
"""Unit of `st_blocks`, whatever the block size of the file system."""

MIB = 1 << 20

ENTRY_BYTES = 4096
"""Added for each file or folder to the size of its content, so that many small ones count too."""


def free_bytes(descriptor: int) -> int | None:
    """Return how many bytes are free where the open file or folder lies; None if the file system reports no
    sizes, as some network file systems do not."""
    disk = os.fstatvfs(descriptor)
    return disk.f_bavail * disk.f_frsize if disk.f_blocks else None


def too_little_stays(reserve: int) -> str:
    """Say that `reserve` bytes would not stay free."""
    return f"less than {reserve // MIB} MiB would stay free on the disk of the state folder"


def preallocate(descriptor: int, offset: int, size: int) -> bool:
    """Reserve `size` bytes from `offset` for an open file; false if that is not possible."""
    if sys.platform != "linux":
        return False
    # `os.posix_fallocate` would extend the file.
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    code: int = fallocate(descriptor, _KEEP_SIZE, offset, size)
    return code == 0


def preallocated_bytes(descriptor: int) -> int:
    """Return about how many bytes are reserved beyond the end of an open file."""
    status = os.fstat(descriptor)
    return max(status.st_blocks * _BLOCK_BYTES - status.st_size, 0)


_F_FULLFSYNC = 51
"""From <sys/fcntl.h> of macOS."""


def sync(descriptor: int, control: Callable[[int, int], object] | None = None) -> None:
    """Return when the file or folder open as `descriptor` is on the disk.

    On macOS fsync(2) leaves data in the cache of the disk, and F_FULLFSYNC of fcntl(2) flushes it. Volumes
    that do not support that, such as some of other systems and of the network, get fsync. `control` is
    `fcntl.fcntl`.

    Raises:
        OSError: it could not be written.
    """
    if sys.platform == "darwin":
        # Only POSIX systems have this module.
        import fcntl

        with suppress(OSError):
            (control or fcntl.fcntl)(descriptor, _F_FULLFSYNC)
            return
    os.fsync(descriptor)


HISTORY_FOLDER = "history"
QUARANTINE_FOLDER = "quarantine"
CACHES_FOLDER = "caches"
PREPARED_FOLDER = "prepared"


@dataclass(frozen=True, kw_only=True)
class Removed:
    """The removed entries, by name."""

    names: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()
    """Entries that could not be removed completely."""


def enforce_limits(folder: str, *, total: int, seconds: float, since: float) -> Removed:
    """Remove the entries that are older than `seconds`, then the oldest until the rest has `total` bytes.

    The entries are the folders in `folder`, an absolute path. Those newer than `since`, the start of the
    oldest running server in seconds since 1970, stay, so none disappears in the session that reported it.

    Raises:
        OSError: the folder cannot be listed.
    """
    try:
        with os.scandir(folder) as entries:
            found = sorted(
                (entry.stat(follow_symlinks=False).st_mtime, entry.name)
                for entry in entries
                if entry.is_dir(follow_symlinks=False)
            )
    except FileNotFoundError:
        return Removed()
    sizes = {name: size_of(f"{folder}/{name}") for _, name in found}
    left, now = sum(sizes.values()), time.time()
    names: list[str] = []
    for moment, name in found:
        if moment >= since or (now - moment <= seconds and left <= total):
            continue
        left -= sizes[name]
        remove_tree(f"{folder}/{name}")
        names.append(name)
    stuck = tuple(name for name in names if os.path.lexists(f"{folder}/{name}"))
    return Removed(names=tuple(name for name in names if name not in stuck), stuck=stuck)


def size_of(path: str, onerror: Callable[[OSError], object] | None = None) -> int:
    """Return the total size of a folder or file; `sys.maxsize` if it is nested too deeply for a path. Links
    are not followed, and what is gone counts nothing; `onerror` gets the errors of folders that cannot be
    listed."""
    total = _entry_size(path)
    # To open a pipe would wait for somebody to write.
    waiting = [path] if os.path.isdir(path) and not os.path.islink(path) else []
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    total += _entry_size(entry.path)
                    waiting += [entry.path] * entry.is_dir(follow_symlinks=False)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return sys.maxsize
            if onerror is not None:
                onerror(error)
    return total


def _entry_size(path: str) -> int:
    with suppress(FileNotFoundError):
        status = os.lstat(path)
        return ENTRY_BYTES + (status.st_size if stat.S_ISREG(status.st_mode) else 0)
    return 0


def remove_tree(path: str) -> None:
    """Remove a folder that no command uses any more, as far as possible: also what a command left without
    permissions, or nested too deeply for a path, because each folder is moved to the top before its turn."""
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        _permit(folder)
        with suppress(OSError):
            for entry in [*os.scandir(folder)]:
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        # Without permissions it cannot be moved.
                        _permit(entry.path)
                        os.rename(entry.path, moved := f"{path}/{secrets.token_hex(8)}")
                        waiting.append(moved)
                    else:
                        os.unlink(entry.path)
            if folder != path:
                os.rmdir(folder)
    with suppress(OSError):
        os.rmdir(path)


def _permit(folder: str) -> None:
    """Take all permissions on a folder, unless the kernel lets this server change none, as in read-only."""
    with suppress(OSError):
        os.chmod(folder, stat.S_IRWXU)
