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
        self._file = -1

    @property
    def is_acquired(self) -> bool:
        """Whether this server has its lock."""
        return self._file >= 0

    def acquire(self, *, removes_dead: bool = True) -> None:
        """Take the lock of this server, if it has none. `removes_dead`: remove the files of dead servers.

        Raises:
            OSError.
        """
        if self.is_acquired:
            return
        self._file = os.open(self._prefix + self.name, CREATE, 0o600)
        try_lock(self._file)
        for name in self.dead() if removes_dead else ():
            self.remove(name)

    def release(self, *, leave_file: bool = False) -> None:
        """Release the lock. The file stays where another server is to find it, as after a crash."""
        if self.is_acquired:
            if not leave_file:
                self.remove(self.name)
            os.close(self._file)
            self._file = -1

    def dead_of(self, rows: Iterable[tuple[str]]) -> list[str]:
        """Those of the servers in these rows that have ended."""
        return [name for (name,) in rows if not is_locked(self._prefix + name)]

    def remove(self, name: str) -> None:
        """Remove the file of a server."""
        Path(self._prefix + name).unlink(missing_ok=True)

    def dead(self) -> list[str]:
        """The names of dead servers that left a file."""
        return dead_servers(self._prefix)


def dead_servers(prefix: str) -> list[str]:
    """The names of the servers that left a file whose path begins with `prefix` and have ended."""
    folder, _, start = prefix.rpartition("/")
    try:
        names = [name.removeprefix(start) for name in os.listdir(folder) if name.startswith(start)]
    except FileNotFoundError:
        return []
    return [name for name in names if not is_locked(prefix + name)]
