"""Folders for the temporary files of commands, where the sandbox does not bring one.

The supervisor of a command holds a lock on its folder, and the kernel releases the lock when the process
ends. So a folder without a lock was left by a killed supervisor.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
from dataclasses import dataclass

FOLDER = "scratch"

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, kw_only=True)
class Scratch:
    """A folder, and the open lock on it."""

    path: str
    lock: int

    @classmethod
    def make(cls, state: str) -> "Scratch":
        """Create a folder in the state folder `state`. Raises: OSError."""
        parent = os.path.join(state, FOLDER)
        os.makedirs(parent, mode=0o700, exist_ok=True)
        while True:
            path = os.path.join(parent, secrets.token_hex(16))
            if (lock := create_locked(path)) is not None:
                return cls(path=path, lock=lock)

    def remove(self) -> None:
        """Remove the folder and its content."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def create_locked(path: str) -> int | None:
    """Create a folder, and lock it until the returned descriptor is closed; None if a server that starts took
    it for abandoned before it was locked, and removes it. Raises: OSError."""
    os.mkdir(path, 0o700)
    with contextlib.ExitStack() as undo, contextlib.suppress(FileNotFoundError):
        lock = os.open(path, _OPEN)
        undo.callback(os.close, lock)
        if _is_free(lock) and os.path.samestat(os.fstat(lock), os.lstat(path)):
            undo.pop_all()
            return lock
    return None


def sweep(state: str) -> int:
    """Remove the folders of ended supervisors; returns how many. Raises: OSError: they cannot be listed."""
    parent = os.path.join(state, FOLDER)
    try:
        names = os.listdir(parent)
    except FileNotFoundError:
        return 0
    return sum(_is_removed(os.path.join(parent, name)) for name in names)


def _is_removed(path: str) -> bool:
    try:
        lock = os.open(path, _OPEN)
    except OSError:
        return False
    try:
        if not _is_free(lock):
            return False
        shutil.rmtree(path, ignore_errors=True)
        return not os.path.lexists(path)
    finally:
        os.close(lock)


def _is_free(lock: int) -> bool:
    """Take the lock if it is free."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def remove(folder: str) -> None:
    """Remove a folder with all that is in it, as far as this user may."""
    shutil.rmtree(folder, ignore_errors=True)
    if not os.path.lexists(folder):
        return
    # A command may have left folders that cannot be listed.
    follows = os.chmod not in os.supports_follow_symlinks
    for here, folders, _ in os.walk(folder):
        for name in folders:
            with contextlib.suppress(OSError):
                os.chmod(os.path.join(here, name), 0o700, follow_symlinks=follows)
    shutil.rmtree(folder, ignore_errors=True)


# --- in one folder of a broker: for the commands of a session, or for one command -------------------------


def create(folder: str) -> None:
    """Create the folder of the broker. It is locked as long as this process and its forks live: programs do
    not inherit the lock, so the next server removes what supervisors left. Raises: OSError."""
    os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
    while create_locked(folder) is None:
        pass


def of_session(folder: str, session: bytes) -> str:
    """The folder of a session in that of the broker, created if there is none yet. Raises: OSError."""
    path = os.path.join(folder, session.decode("ascii"))
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    return path


def of_command(folder: str) -> str:
    """A new folder for one command in that of the broker. Raises: OSError."""
    path = os.path.join(folder, f"command-{secrets.token_hex(16)}")
    os.mkdir(path, 0o700)
    return path
