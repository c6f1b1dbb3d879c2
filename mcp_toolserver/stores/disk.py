"""How much room the files of the state folder take and leave, preallocation for one that must be able to grow
when the disk is full, and what makes data survive a loss of power.
"""

import ctypes
import os
import sys
from collections.abc import Callable

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
        try:
            # Only POSIX systems have this module.
            import fcntl

            (control or fcntl.fcntl)(descriptor, _F_FULLFSYNC)
        except (ImportError, OSError):
            pass
        else:
            return
    os.fsync(descriptor)
