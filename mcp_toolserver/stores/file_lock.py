"""Provides locks between processes, held on an open file."""

import errno
import time
from collections.abc import Callable

LOCK_TIMEOUT_SECONDS = 2.0
"""Timeout for acquiring the lock."""

LOCK_RETRY_SECONDS = 0.001
"""Interval between attempts."""


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
