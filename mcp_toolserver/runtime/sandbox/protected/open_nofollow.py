"""Opening what lies below a root without ever following a link. Rights are not needed: nothing is read."""

import os
import stat
from typing import Literal

LOOK: int = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC

NO_FOLDER = -1
"""For absolute paths, with which openat(2) ignores the folder."""

_RIGHTS = "system.posix_acl_access"


EntryKind = Literal["folder", "file", "link"]
"""A file is whatever is neither folder nor link."""


def entry_kind(entry: os.DirEntry[str]) -> EntryKind:
    """What lies under a name."""
    if entry.is_symlink():
        return "link"
    return "folder" if entry.is_dir(follow_symlinks=False) else "file"


def opened(root: int, path: str) -> int:
    """A descriptor of `path` itself, below the folder open as `root`.

    Raises:
        OSError: it is not there, or a folder on the way is a link.
    """
    *folders, name = path.split("/")
    here = root
    try:
        for folder in folders:
            deeper = os.open(folder, LOOK | os.O_DIRECTORY, dir_fd=here)
            if here != root:
                os.close(here)
            here = deeper
        return os.open(name, LOOK, dir_fd=here)
    finally:
        if here != root:
            os.close(here)


def is_out_of_reach(root: int, path: str) -> bool:
    """Whether a folder on the way keeps out a process of this user that has no capabilities.

    It concerns root, whose commands have none, while its server opens everything.
    """
    folders = path.split("/")[:-1]
    ways = ("/".join(folders[: count + 1]) for count in range(len(folders)))
    return any(_keeps_out(root, way) for way in ways)


def _keeps_out(root: int, folder: str) -> bool:
    status = os.stat(folder, dir_fd=root, follow_symlinks=False)
    if status.st_uid == os.geteuid():
        return False
    is_member = status.st_gid in (os.getegid(), *os.getgroups())
    if status.st_mode & (stat.S_IXGRP if is_member else stat.S_IXOTH):
        return False
    # A list of further rights may let it in all the same.
    here = os.open(folder, LOOK, dir_fd=root)
    try:
        return _RIGHTS not in os.listxattr(f"/proc/self/fd/{here}")
    finally:
        os.close(here)
