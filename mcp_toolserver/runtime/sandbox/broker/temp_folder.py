"""Folders for the temporary files of commands, where the sandbox does not bring one.

The supervisor of a command holds a lock on its folder, and the kernel releases the lock when the process
ends. So a folder without a lock was left by a killed supervisor.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager

from mcp_toolserver.stores.file_lock import try_lock

FOLDER = "scratch"

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def scratch(state: str) -> Generator[str]:
    """A locked folder in the state folder `state`, removed in the end. Raises: OSError."""
    path = os.path.join(state, FOLDER, secrets.token_hex(16))
    lock = create(path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def create(path: str) -> int:
    """Create a folder of a name that nobody else has, and lock it until the returned descriptor is closed, in
    this process and its forks: programs do not inherit the lock. Raises: OSError."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    while True:
        # A server that starts may take it for abandoned before it is locked, and remove it.
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        with contextlib.ExitStack() as undo, contextlib.suppress(FileNotFoundError):
            lock = os.open(path, _OPEN)
            undo.callback(os.close, lock)
            if try_lock(lock) and os.path.samestat(os.fstat(lock), os.lstat(path)):
                undo.pop_all()
                return lock


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
        if not try_lock(lock):
            return False
        shutil.rmtree(path, ignore_errors=True)
        return not os.path.lexists(path)
    finally:
        os.close(lock)


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


def of_command(folder: str) -> str:
    """Create a folder for one command in that of the broker. Raises: OSError."""
    path = os.path.join(folder, f"command-{secrets.token_hex(16)}")
    os.mkdir(path, 0o700)
    return path
