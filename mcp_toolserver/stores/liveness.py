"""Tells which servers live whose names are in the rows of a table."""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from mcp_toolserver.stores.file_lock import LivenessLock, is_locked

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
