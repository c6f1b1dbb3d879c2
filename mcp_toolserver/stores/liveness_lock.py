"""Shows other servers that a process is alive, by a lock that the kernel releases when it ends."""

import os

from mcp_toolserver.stores.file_lock import try_lock

_MAKE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class LivenessLock:
    """A file that is locked while this process lives.

    Raises:
        OSError: the file already exists or cannot be created.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = os.open(path, _MAKE, 0o600)
        try_lock(self._file)

    def release(self) -> None:
        """Remove the file and release the lock."""
        remove_lock_file(self._path)
        os.close(self._file)


def is_alive(path: str) -> bool:
    """Whether a process holds the lock at `path`."""
    try:
        file = os.open(path, _LOOK)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(file)
    finally:
        os.close(file)


def remove_lock_file(path: str) -> None:
    """Remove a lock file, if it exists."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
