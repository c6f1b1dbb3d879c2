"""Where the server keeps what is its own."""

import os
import stat
from contextlib import suppress

import platformdirs

from mcp_toolserver.errors import SettingsError


def state_folder(chosen: str | None) -> str:
    """The private folder of the server, absolute, links resolved; not created before it is needed."""
    return os.path.realpath(chosen or platformdirs.user_state_dir("mcp-toolserver", appauthor=False))


def make_state_folder(path: str) -> str:
    """Make the folder, private, where it is not there yet; its path.

    Raises:
        SettingsError: it cannot be made.
    """
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"the state folder {path} cannot be made: {error.strerror}") from None
    return path


def private_folder(state: str, name: str) -> str:
    """The folder `name` in the state folder, made where it is not there; its path.

    Raises:
        OSError: it cannot be made, is a link, or others may use it.
    """
    path = f"{state}/{name}"
    os.makedirs(state, mode=0o700, exist_ok=True)
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PermissionError(None, "it is no private folder of this user")
    return path
