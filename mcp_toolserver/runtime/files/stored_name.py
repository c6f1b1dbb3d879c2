"""The name that a folder stores for a file which was opened by a variant of it."""

import errno
import os
import stat
import sys
from collections.abc import Callable, Sequence
from itertools import islice

from mcp_toolserver.runtime.descriptor_path import descriptor_path
from mcp_toolserver.text.file_names import folded

_MOST = 1_000_000
"""Entries of one folder that are looked through."""


def stored_name(folder: int, name: str, fd: int, path_of: Callable[[int], str] = descriptor_path) -> str:
    """The name in the open `folder` of the object open as `fd`, which was opened as `name`.

    macOS knows it (`path_of`), unless a file has several names; elsewhere the folder is read.

    Raises:
        OSError: EAGAIN when it has no name there now; EACCES and others when the folder cannot be read.
    """
    status = os.fstat(fd)
    if sys.platform == "darwin" and (status.st_nlink == 1 or stat.S_ISDIR(status.st_mode)):
        known = _known_name(name, fd, path_of)
        if known is not None:
            return known
    names: list[str] = []
    aliases: list[str] = []
    opened = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    wanted = folded(name)
    try:
        with os.scandir(opened) as entries:
            for entry in islice(entries, _MOST):
                if entry.name == name:
                    return name
                if folded(entry.name) == wanted:
                    names.append(entry.name)
                elif entry.inode() == status.st_ino:
                    # A short name, for instance, or one in which the volume leaves something out.
                    aliases.append(entry.name)
    finally:
        os.close(opened)
    return _first_same(folder, (*sorted(names), *sorted(aliases)), status)


def _known_name(name: str, fd: int, path_of: Callable[[int], str]) -> str | None:
    try:
        known = os.path.basename(path_of(fd))
    except (ImportError, OSError):
        return None
    return known if folded(known) == folded(name) else None


def _first_same(folder: int, names: Sequence[str], status: os.stat_result) -> str:
    for name in names:
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if os.path.samestat(found, status):
            return name
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
