"""Moves files that a command may not create into quarantine. It deletes nothing and follows no link."""

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
import time

from mcp_toolserver.runtime.sandbox.protected.open_nofollow import opened
from mcp_toolserver.stores.disk import size_of

LARGEST_COPY = 64 << 20
"""Bytes that are copied to another file system; more than that stays next to where it was."""

ASIDE = "quarantined-"
"""How the new name begins of what has to stay in its folder. Nothing acts upon such a name."""

LONGEST_KEPT = 1_000
"""Bytes of a path that the quarantine repeats. Of a longer one it keeps the last name: neither the kernel nor
Python's own functions take folders nested without limit."""

_ASIDE = re.compile(rf"{ASIDE}[0-9a-f]{{8}}")

_NAME_KEPT = 40
"""Characters of a name that follow `ASIDE`: no name may be longer than 255 bytes."""

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def is_aside(name: str) -> bool:
    """Whether `name` is that of something that was set aside where it lay. Such a folder is protected as a
    whole, because it may hold further protected names."""
    return _ASIDE.match(name) is not None


class TooLarge(Exception):
    """The files are too large to copy."""


def new_name() -> str:
    """Return a new folder name for the files of one command."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"


def set_aside(root: int, path: str, quarantine: str, room: int) -> tuple[str, int]:
    """Move `path` below the folder open as `root` into `quarantine`, or next to itself where that fails or it
    has more than `room` bytes.

    Returns where it is, absolute in the quarantine, else from the root; and the bytes it takes there.

    Raises:
        OSError: it could not be moved at all.
    """
    folder, _, name = path.rpartition("/")
    target = os.path.join(quarantine, path if len(os.fsencode(path)) <= LONGEST_KEPT else name)
    parent = opened(root, folder) if folder else os.dup(root)
    sibling = f"{ASIDE}{secrets.token_hex(4)}{name[:_NAME_KEPT]}"
    beside = f"{folder}/{sibling}" if folder else sibling
    try:
        try:
            os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
            _move(parent, name, target)
        except (OSError, TooLarge):
            os.rename(name, sibling, src_dir_fd=parent, dst_dir_fd=parent)
            return beside, 0
        # Only now: programs act upon it for as long as it takes.
        if (size := bytes_of(target, room)) <= room:
            return target, size
        os.rename(target, sibling, dst_dir_fd=parent)
        return beside, 0
    finally:
        os.close(parent)


def bytes_of(path: str, room: int) -> int:
    """Return the size of the quarantine or of something in it; more than `room` if nobody can tell."""
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, stat.S_IRWXU)
        return size_of(path, _refuse)
    except OSError:
        return room + 1


def _refuse(error: OSError) -> None:
    raise error


def _move(parent: int, name: str, target: str) -> None:
    try:
        os.rename(name, target, src_dir_fd=parent)
    except PermissionError:
        _permit(parent, name)
        os.rename(name, target, src_dir_fd=parent)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy_away(parent, name, target)


def _permit(parent: int, name: str) -> None:
    """Undo modes that a command set to keep things where they are."""
    folders = [os.dup(parent)]
    with contextlib.suppress(OSError):
        folders.append(os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent))
    for folder in folders:
        with contextlib.suppress(OSError):
            # A descriptor that cannot read cannot be used with fchmod.
            os.chmod(f"/proc/self/fd/{folder}", stat.S_IMODE(os.fstat(folder).st_mode) | stat.S_IRWXU)
        os.close(folder)


def _copy_away(parent: int, name: str, target: str) -> None:
    try:
        _copy(parent, name, target, [LARGEST_COPY])
    except (OSError, TooLarge):
        _remove(None, target)
        raise
    except RecursionError:
        _remove(None, target)
        raise TooLarge from None
    _remove(parent, name)


def _remove(parent: int | None, name: str) -> None:
    try:
        os.unlink(name, dir_fd=parent)
    except IsADirectoryError:
        shutil.rmtree(name, dir_fd=parent)
    except FileNotFoundError:
        pass


def _copy(parent: int, name: str, target: str, left: list[int]) -> None:
    """Copy one entry; `left` holds how many bytes more may be copied."""
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(name, dir_fd=parent), target)
    elif stat.S_ISDIR(status.st_mode):
        _copy_folder(parent, name, target, left)
    elif stat.S_ISREG(status.st_mode):
        left[0] -= status.st_size
        if left[0] < 0:
            raise TooLarge
        _copy_file(parent, name, target)
    # Pipes, sockets and devices hold nothing.


def _copy_file(parent: int, name: str, target: str) -> None:
    with os.fdopen(os.open(name, _READ, dir_fd=parent), "rb") as source:
        made = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(made, "wb") as copy:
            shutil.copyfileobj(source, copy)
            os.fchmod(copy.fileno(), os.fstat(source.fileno()).st_mode & 0o777)


def _copy_folder(parent: int, name: str, target: str, left: list[int]) -> None:
    folder = os.open(name, _READ | os.O_DIRECTORY, dir_fd=parent)
    try:
        os.mkdir(target, 0o700)
        for entry in os.listdir(folder):
            left[0] -= 1
            _copy(folder, entry, os.path.join(target, entry), left)
    finally:
        os.close(folder)
