"""The temporary folders of commands, below the state folder: one for a session, else one for each command.

All lie in one folder of the broker, which it keeps locked. Its supervisors inherit the lock, so that the next
server removes what is left once they have ended too; see `temp_folder.sweep`.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from mcp_toolserver.runtime.sandbox.broker.temp_folder import FOLDER

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def broker_folder(state: str, name: str) -> str:
    """The path of the folder of the broker called `name`, with links resolved, as Seatbelt compares paths."""
    return os.path.join(os.path.realpath(state), FOLDER, name)


@dataclass(frozen=True, kw_only=True)
class Folders:
    """The folders of one broker."""

    path: str

    @classmethod
    def create(cls, path: str) -> "Folders":
        """Create the folder of the broker at `path`, locked as long as this process and its forks live.

        Raises:
            OSError: it cannot be created.
        """
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        while not _is_locked(path):
            pass
        return cls(path=path)

    def of_session(self, session: str) -> str:
        """The folder of a session, created if there is none yet. Raises: OSError."""
        folder = os.path.join(self.path, session)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        return folder

    def of_command(self) -> str:
        """A new folder for one command. Raises: OSError."""
        folder = os.path.join(self.path, f"command-{secrets.token_hex(16)}")
        os.mkdir(folder, 0o700)
        return folder


def _is_locked(path: str) -> bool:
    """Create and lock a folder; false if a server that starts took it for abandoned, and removed it."""
    os.mkdir(path, 0o700)
    try:
        # The lock stays open for good; no program inherits it.
        lock = os.open(path, _OPEN)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), os.lstat(path)):
            return True
        os.close(lock)
    except (FileNotFoundError, BlockingIOError):
        pass
    return False


def opened(folder: str) -> int:
    """The folder, open; the caller closes it. Raises: OSError."""
    return os.open(folder, _OPEN)


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
