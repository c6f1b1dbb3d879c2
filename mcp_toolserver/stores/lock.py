"""A lock between processes, held on an open file for microseconds."""

import errno
import time
from collections.abc import Callable

_PATIENCE_SECONDS = 2.0
_PAUSE_SECONDS = 0.001


class FileLock:
    """A context in which no other process has the same lock; it ends with the process.

    Raises:
        OSError: another process keeps it.
    """

    def __init__(self, descriptor: int) -> None:
        # A platform without such locks has no log, and so no calls; it has no module either.
        import fcntl

        self._descriptor = descriptor
        self._flock: Callable[[int, int], object] = fcntl.flock
        self._take = fcntl.LOCK_EX | fcntl.LOCK_NB
        self._leave = fcntl.LOCK_UN

    def __enter__(self) -> None:
        try:
            self._flock(self._descriptor, self._take)
        except BlockingIOError:
            self._wait()

    def __exit__(self, *_: object) -> None:
        self._flock(self._descriptor, self._leave)

    def _wait(self) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                self._flock(self._descriptor, self._take)
            except BlockingIOError:
                time.sleep(_PAUSE_SECONDS)
            else:
                return
        raise BlockingIOError(errno.EAGAIN, "another process keeps it locked")
