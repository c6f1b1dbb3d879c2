"""Locates and creates the server's state folder, and opens what lies in it."""

import errno
import os
import secrets
import stat
import sys
from contextlib import suppress

from mcp_toolserver.errors import SettingsError

if sys.platform != "win32":  # which lacks these flags, and where the start says that WSL is needed
    OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    """Flags to open a folder."""

    CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    """Flags to create a file."""

    READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    """Flags to read a file, without waiting for the writer of a FIFO in its place."""


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


def replace_file(path: str, text: str) -> None:
    """Write a file that only this user can read, or replace it whole. Raises: OSError."""
    new = f"{path}.{secrets.token_hex(4)}"
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text.encode())
            os.fsync(file.fileno())
        os.rename(new, path)
    except OSError:
        with suppress(OSError):
            os.unlink(new)
        raise


def open_owned(path: str, parent: int | None = None) -> int:
    """Open a folder, relative to the open folder `parent`.

    Raises:
        PermissionError: it is a link, not a folder, or owned by another user.
    """
    try:
        folder = os.open(path, OPEN_FOLDER, dir_fd=parent)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise PermissionError(f"the state folder {path} is a link or not a folder; remove it") from None
    if os.fstat(folder).st_uid != os.geteuid():
        os.close(folder)
        raise PermissionError(f"the state folder {path} belongs to another user; choose another --state-dir")
    return folder


def open_private(path: str, parent: int | None = None) -> int:
    """Open a folder as `open_owned` does; create it if needed, and let no other user access it."""
    with suppress(FileExistsError):
        os.mkdir(path, 0o700, dir_fd=parent)
    folder = open_owned(path, parent)
    if stat.S_IMODE(os.fstat(folder).st_mode) != 0o700:
        os.fchmod(folder, 0o700)
    return folder
