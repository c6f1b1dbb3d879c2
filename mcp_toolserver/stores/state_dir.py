"""Locates and creates the server's state folder."""

import os
import stat
from contextlib import suppress

from mcp_toolserver.errors import SettingsError


def state_folder(chosen: str | None) -> str:
    """Return the absolute path of the state folder, with links resolved; nothing is created."""
    if chosen is None:
        # A server with `--state-dir` skips this import.
        import platformdirs

        chosen = platformdirs.user_state_dir("mcp-toolserver", appauthor=False)
    return os.path.realpath(chosen)


def make_state_folder(path: str) -> str:
    """Create the private state folder if needed and return its path.

    Raises:
        SettingsError: it cannot be created.
    """
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"the state folder {path} cannot be created: {error.strerror}") from None
    return path


def private_folder(state: str, name: str) -> str:
    """Create the private subfolder `name` if needed and return its path.

    Raises:
        OSError: it cannot be created, is a link, or other users can access it.
    """
    path = f"{state}/{name}"
    os.makedirs(state, mode=0o700, exist_ok=True)
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PermissionError(None, "it is not a private folder of this user")
    return path
