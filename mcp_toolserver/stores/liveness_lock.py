"""Shows servers that share a folder which of them live: by a lock that the kernel ends with its owner."""

import os

_MAKE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class Presence:
    """A file that is locked as long as this process lives.

    Raises:
        OSError: the file is there already, or cannot be made.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = os.open(path, _MAKE, 0o600)
        _locked(self._file)

    def leave(self) -> None:
        """Remove it."""
        forget(self._path)
        os.close(self._file)


def lives(path: str) -> bool:
    """Whether a process holds the presence at `path`."""
    try:
        file = os.open(path, _LOOK)
    except FileNotFoundError:
        return False
    try:
        return not _locked(file)
    finally:
        os.close(file)


def forget(path: str) -> None:
    """Remove the file of one that is gone."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def _locked(file: int) -> bool:
    """Lock an open file, unless another has."""
    # A platform without such locks has no log, and so no calls; it has no module either.
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
