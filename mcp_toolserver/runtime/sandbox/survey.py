"""Where protected names lie beneath a root: a search with bounds that remembers what has not changed.

It looks into folders down to `DEEPEST` and into `MOST_FOLDERS` of them, nearest first, and not into those
that package managers fill. What lies beyond is not found.
"""

import os
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from mcp_toolserver.runtime.sandbox.protected import protected_name

DEEPEST = 3
"""Folders between the root and what is found."""

MOST_FOLDERS = 2_000

NOT_SEARCHED = frozenset(
    (
        *("node_modules", ".venv", "venv", "site-packages", "__pycache__", ".tox", ".nox"),
        *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".cache"),
    )
)

SETTLED_NS = 2_000_000_000
"""A folder that changed less than this before it was read may change again in the same tick of its clock."""

Kind = Literal["folder", "file", "link"]
"""A file is whatever is neither folder nor link."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """What one folder held."""

    inode: int
    changed: int
    """When its entries last did, by a clock that programs cannot set; -1 when that cannot be relied on."""
    folders: tuple[str, ...] = ()
    protected: tuple[tuple[str, Kind], ...] = ()


Survey = Mapping[str, Listing]
"""By path from the root; the root itself is the empty path."""

UNREADABLE = Listing(inode=0, changed=-1)


def survey(root: int, known: Survey | None = None) -> Survey:
    """What lies beneath the folder open as `root`; folders that are as in `known` are not read again."""
    known = known or {}
    found: dict[str, Listing] = {}
    waiting = deque([("", 0)])
    while waiting and len(found) < MOST_FOLDERS:
        path, depth = waiting.popleft()
        listing = _read(root, path, known.get(path))
        found[path] = listing
        if depth < DEEPEST:
            waiting.extend((below(path, folder), depth + 1) for folder in listing.folders)
    return found


def protected_in(seen: Survey) -> Iterator[tuple[str, Kind]]:
    """The protected paths of a survey."""
    for folder, listing in seen.items():
        for name, kind in listing.protected:
            yield below(folder, name), kind


def below(folder: str, name: str) -> str:
    """`name` in `folder`, which may be the root itself."""
    return f"{folder}/{name}" if folder else name


def _read(root: int, path: str, known: Listing | None) -> Listing:
    try:
        if known is not None and known.changed >= 0:
            status = os.stat(path or ".", dir_fd=root, follow_symlinks=False)
            if (status.st_ino, status.st_ctime_ns) == (known.inode, known.changed):
                return known
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        folder = os.open(path or ".", flags, dir_fd=root)
        try:
            return _list(folder)
        finally:
            os.close(folder)
    except OSError:
        return UNREADABLE


def _list(folder: int) -> Listing:
    status = os.fstat(folder)
    settled = time.time_ns() - status.st_ctime_ns > SETTLED_NS
    folders: list[str] = []
    protected: list[tuple[str, Kind]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if protected_name(name) is not None:
                protected.append((name, _kind(entry)))
            elif entry.is_dir(follow_symlinks=False) and name not in NOT_SEARCHED:
                folders.append(name)
    return Listing(
        inode=status.st_ino,
        changed=status.st_ctime_ns if settled else -1,
        folders=tuple(folders),
        protected=tuple(protected),
    )


def _kind(entry: os.DirEntry[str]) -> Kind:
    if entry.is_symlink():
        return "link"
    return "folder" if entry.is_dir(follow_symlinks=False) else "file"
