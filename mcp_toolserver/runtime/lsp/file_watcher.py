"""Detects changed files of a project by polling, because language servers leave that to their clients.

It compares names, sizes and times, and does not follow links. Each poll reads the times of every file; it
lists a folder again only if the folder changed, or had changed so recently that its timestamp may not show
the next change.
"""

import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from mcp_toolserver.runtime.git.repository_cache import RACY_WINDOW_NS

MOST_ENTRIES = 30_000
"""Largest number of entries; others are not watched."""

_LEFT_OUT = frozenset({"node_modules", "__pycache__", "site-packages"})
"""Folders that are skipped, as are hidden ones."""

State = Mapping[str, tuple[int, int, int]]
"""State by absolute path: inode, size and modification time."""

Kind = Literal[1, 2, 3]
CREATED: Kind = 1
CHANGED: Kind = 2
DELETED: Kind = 3
"""The values of the Language Server Protocol."""


@dataclass(frozen=True, kw_only=True)
class FileFilter:
    """Which files to watch."""

    endings: tuple[str, ...]
    """File name suffixes, with their dots."""
    names: Collection[str]


@dataclass(frozen=True, kw_only=True)
class _Listing:
    """The listing of a folder, as absolute paths."""

    stamp: tuple[int, ...]
    is_stable: bool
    """Whether the next change will alter the stamp."""
    entries: int
    files: tuple[str, ...]
    folders: tuple[str, ...]


class FileWatcher:
    """Watches the matching files below `folder`.

    A folder changed within the last `racy_window_ns` nanoseconds is listed again at the next poll.
    """

    def __init__(self, folder: str, wanted: FileFilter, *, racy_window_ns: int = RACY_WINDOW_NS) -> None:
        self._folder = folder
        self._wanted = wanted
        self._racy_window_ns = racy_window_ns
        self._listings: dict[str, _Listing] = {}
        self._state: State = {}

    def __len__(self) -> int:
        """The number of watched files."""
        return len(self._state)

    def poll(self) -> list[tuple[str, Kind]]:
        """Return the changes since the last poll."""
        listings = dict(self._scan())
        after = {path: state for one in listings.values() for path in one.files if (state := _state(path))}
        before, self._state, self._listings = self._state, after, listings
        # Comparing everything at once is much faster in the usual case of no change.
        return [] if after == before else list(_changes(before, after))

    def _scan(self) -> Iterator[tuple[str, _Listing]]:
        folders = [self._folder]
        left = MOST_ENTRIES
        for folder in folders:
            with suppress(OSError):
                listing = self._listing(folder, left)
                left -= listing.entries
                folders += listing.folders
                yield folder, listing

    def _listing(self, folder: str, most: int) -> _Listing:
        """List `folder`, or reuse its previous listing. Raises: OSError: it is missing or unreadable."""
        now = time.time_ns()
        status = os.stat(folder)
        stamp = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        previous = self._listings.get(folder)
        if (
            previous is not None
            and previous.is_stable
            and previous.stamp == stamp
            and previous.entries <= most
        ):
            return previous
        with os.scandir(folder) as found:
            entries = list(islice(found, most))
        files: list[str] = []
        folders: list[str] = []
        for entry in entries:
            name = entry.name
            if name.endswith(self._wanted.endings) or name in self._wanted.names:
                files.append(entry.path)
            elif name[0] != "." and name not in _LEFT_OUT and entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
        return _Listing(
            stamp=stamp,
            is_stable=max(status.st_mtime_ns, status.st_ctime_ns) < now - self._racy_window_ns,
            entries=len(entries),
            files=tuple(files),
            folders=tuple(folders),
        )


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _changes(before: State, after: State) -> Iterator[tuple[str, Kind]]:
    """Yield the kind of change of each changed file."""
    for path, state in after.items():
        if path not in before:
            yield path, CREATED
        elif before[path] != state:
            yield path, CHANGED
    for path in before:
        if path not in after:
            yield path, DELETED
