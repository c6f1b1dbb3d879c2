"""Fingerprints of protected paths, to detect whether one has changed.

A fingerprint has identity and content, never the modification time, which any program can set. That of a
folder has its entries with their status change times, which no program can set.
"""

import hashlib
import os
import stat
from collections.abc import Iterator

from mcp_toolserver.runtime.sandbox.protected.folder_scan import below

LARGEST_READ = 1 << 20
"""Bytes of a file that is identified by its content; a larger one is by its size and status change time."""

Fingerprint = tuple[object, ...]
"""To be compared, nothing else."""


def fingerprint(root: int, path: str, *, contents: bool = True) -> Fingerprint | None:
    """Of `path` below the folder open as `root`; None when nothing is there.

    Without `contents`, whether it is the same folder or file at all.
    """
    try:
        status = os.stat(path, dir_fd=root, follow_symlinks=False)
        identity = (stat.S_IFMT(status.st_mode), status.st_ino)
        if not contents:
            return identity
        if stat.S_ISLNK(status.st_mode):
            return (*identity, os.readlink(path, dir_fd=root))
        if stat.S_ISDIR(status.st_mode):
            return (*identity, status.st_mode, *_entries(root, path))
        if stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST_READ:
            return (*identity, status.st_mode, _digest(root, path))
    except OSError:
        return None
    except RecursionError:
        # Folders nested deeper than any that were there before count as a change.
        return ("nested too deep",)
    return (*identity, *_stamp(status))


def _digest(root: int, path: str) -> object:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=root)
    except PermissionError:
        return "unreadable"
    try:
        return hashlib.sha256(os.read(file, LARGEST_READ)).digest()
    finally:
        os.close(file)


def _entries(root: int, path: str) -> Iterator[tuple[object, ...]]:
    for folder, folders, files, descriptor in os.fwalk(path, dir_fd=root):
        folders.sort()
        for name in sorted((*folders, *files)):
            status = _status(descriptor, name)
            if status is not None:
                yield (below(folder, name), status.st_ino, *_stamp(status))


def _status(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    """Of anything but a link or a folder's own entries: what changes whenever its content does."""
    return (status.st_mode, status.st_size, status.st_ctime_ns)
