"""Where the server keeps what is its own."""

import os

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
