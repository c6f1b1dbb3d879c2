"""Provides locks between processes, held on an open file, and tells by them which servers live."""

import errno
import os
import secrets
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

from mcp_toolserver.stores.state_dir import CREATE

LOCK_TIMEOUT_SECONDS = 2.0
"""Timeout for acquiring the lock."""

LOCK_RETRY_SECONDS = 0.001
"""Interval between attempts."""

OPEN_LOCK = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Flags to open a file that may be locked; file systems of the network lock only what is open for writing."""


@contextmanager
def locked(descriptor: int) -> Generator[None]:
    """Hold an exclusive lock between processes on an open file; it ends with the process too.

    Waiting for it blocks the thread; code on the event loop uses `try_lock`.

    Raises:
        OSError: another process holds it for `LOCK_TIMEOUT_SECONDS`.
    """
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
    while not try_lock(descriptor):
        if time.monotonic() >= deadline:
            raise lock_timeout_error()
        time.sleep(LOCK_RETRY_SECONDS)
    try:
        yield
    finally:
        unlock(descriptor)


def lock_timeout_error() -> OSError:
    """Return the error for a lock that could not be acquired in time."""
    return BlockingIOError(errno.EAGAIN, "another process keeps it locked")


def try_lock(descriptor: int) -> bool:
    """Lock an open file until it is closed; false if another process holds it or locks are missing."""
    try:
        # Some platforms lack this module.
        import fcntl
    except ImportError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(descriptor: int) -> None:
    """Release the lock that `try_lock` took."""
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_UN)


def is_locked(path: str, *, dir_fd: int | None = None) -> bool:
    """Whether a process holds the lock on the file at `path`; False if there is no file."""
    try:
        file = os.open(path, OPEN_LOCK, dir_fd=dir_fd)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(file)
    finally:
        os.close(file)


class ServerLiveness:
    """The name of this server in the tables of a database, and the locks of all servers that wrote to them.

    The locks are files whose paths begin with `prefix`. Use it inside transactions only: then no other server
    takes its lock between a check and the change that follows.
    """

    def __init__(self, prefix: str) -> None:
        self.name = secrets.token_hex(8)
        self._prefix = prefix
        self._file = -1

    def acquire(self) -> str:
        """Take the lock of this server, if it has none, and remove the files of dead servers; its name.

        Raises:
            OSError.
        """
        if self._file < 0:
            self._file = os.open(self._prefix + self.name, CREATE, 0o600)
            try_lock(self._file)
            folder, _, start = self._prefix.rpartition("/")
            found = (name.removeprefix(start) for name in os.listdir(folder) if name.startswith(start))
            for name in found:
                if not is_locked(self._prefix + name):
                    self._remove(name)
        return self.name

    def release(self) -> None:
        """Let other servers know that this one has ended."""
        if self._file >= 0:
            self._remove(self.name)
            os.close(self._file)
            self._file = -1

    def dead_of(self, rows: Iterable[tuple[str]]) -> list[str]:
        """Those of the servers in these rows that have ended."""
        return [name for (name,) in rows if name != self.name and not is_locked(self._prefix + name)]

    def _remove(self, name: str) -> None:
        Path(self._prefix + name).unlink(missing_ok=True)
