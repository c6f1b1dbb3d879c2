"""Provides locks between processes, held on an open file, and tells by them which servers live."""

import errno
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
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


BOARD = ".board-"
"""Between the path of the database and the names in the paths of the locks of the task board. It is here
because a server looks for them at its start, which does not import the board."""


class ServerLiveness:
    """The name of this server in one table, and the locks of all servers that wrote to it.

    The locks are files whose paths begin with `prefix`. Use it inside transactions only: then no other server
    takes its lock between a check and the change that follows.
    """

    def __init__(self, prefix: str) -> None:
        self.name = secrets.token_hex(8)
        self._prefix = prefix
        self._lock: LivenessLock | None = None

    @property
    def is_acquired(self) -> bool:
        """Whether this server has its lock."""
        return self._lock is not None

    def acquire(self) -> bool:
        """Take the lock of this server; returns whether it had none before. Raises: OSError."""
        if self._lock is not None:
            return False
        self._lock = LivenessLock(self._prefix + self.name)
        return True

    def release(self, *, leave_file: bool = False) -> None:
        """Release the lock. The file stays where another server is to find it, as after a crash."""
        if self._lock is not None:
            self._lock.release(leave_file=leave_file)
            self._lock = None

    def is_dead(self, name: str) -> bool:
        """Whether the server `name` has ended."""
        return not is_locked(self._prefix + name)

    def dead_of(self, rows: Iterable[tuple[str]]) -> list[str]:
        """Those of the servers in these rows that have ended."""
        return [name for (name,) in rows if self.is_dead(name)]

    def remove(self, name: str) -> None:
        """Remove the file of a dead server."""
        Path(self._prefix + name).unlink(missing_ok=True)

    def dead(self) -> Iterator[str]:
        """The names of dead servers that left a file."""
        return (name for name in lock_names(self._prefix) if name != self.name and self.is_dead(name))


def any_dead(prefix: str) -> bool:
    """Whether a server left a file whose path begins with `prefix` and has ended."""
    return any(not is_locked(prefix + name) for name in lock_names(prefix))


def lock_names(prefix: str) -> tuple[str, ...]:
    """The names of the servers that have a file whose path begins with `prefix`."""
    folder, _, start = prefix.rpartition("/")
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return ()
    return tuple(name.removeprefix(start) for name in names if name.startswith(start))
