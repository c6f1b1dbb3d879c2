"""Provides locks between processes, held on an open file."""

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

LOCK_TIMEOUT_SECONDS = 2.0
"""Timeout for acquiring the lock."""

LOCK_RETRY_SECONDS = 0.001
"""Interval between attempts."""

_MAKE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FileLock:
    """An exclusive lock between processes, held for microseconds and released when the process ends.

    Entering blocks the thread for up to `LOCK_TIMEOUT_SECONDS`; code on the event loop uses `try_acquire`.

    Raises:
        OSError: another process holds it.
    """

    def __init__(self, descriptor: int) -> None:
        # Imported here because some platforms lack this module; they have no audit log and run no calls.
        import fcntl

        self._descriptor = descriptor
        self._flock: Callable[[int, int], object] = fcntl.flock
        self._take = fcntl.LOCK_EX | fcntl.LOCK_NB
        self._leave = fcntl.LOCK_UN

    def __enter__(self) -> None:
        deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
        while not self.try_acquire():
            if time.monotonic() >= deadline:
                raise lock_timeout_error()
            time.sleep(LOCK_RETRY_SECONDS)

    def __exit__(self, *_: object) -> None:
        self.release()

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free; false if another process holds it."""
        try:
            self._flock(self._descriptor, self._take)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Release the lock."""
        self._flock(self._descriptor, self._leave)


def lock_timeout_error() -> OSError:
    """Return the error for a lock that could not be acquired in time."""
    return BlockingIOError(errno.EAGAIN, "another process keeps it locked")


def try_lock(descriptor: int) -> bool:
    """Acquire a lock until the file is closed; false if another process holds it or locks are missing."""
    try:
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(path: str, *, dir_fd: int | None = None) -> bool:
    """Whether a process holds the lock on the file at `path`; False if there is no file."""
    try:
        file = os.open(path, _LOOK, dir_fd=dir_fd)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(file)
    finally:
        os.close(file)


class LivenessLock:
    """A file that is locked while this process lives; the kernel releases the lock when it ends.

    Raises:
        OSError: the file already exists or cannot be created.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._file = os.open(path, _MAKE, 0o600)
        try_lock(self._file)

    def release(self, *, leave_file: bool = False) -> None:
        """Release the lock, and remove the file unless `leave_file`."""
        if not leave_file:
            self._path.unlink(missing_ok=True)
        os.close(self._file)
