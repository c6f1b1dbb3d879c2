"""The temporary folders of commands, below the state folder: one for a session, else one for each command.

All lie in one folder of the broker, which it keeps locked. Its supervisors inherit the lock, so that the next
server removes what is left once they have ended too; see `temp_folder.sweep`.
"""

import contextlib
import os
import secrets
import shutil

from mcp_toolserver.runtime.sandbox.broker.temp_folder import create_locked


def create(folder: str) -> None:
    """Create the folder of the broker, locked as long as this process and its forks live; no program inherits
    the lock. Raises: OSError."""
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
