"""Which files of a project have changed since they were last looked at.

Language servers leave that to their clients. Only names, sizes and times are looked at, and links are not
followed. Every look asks for the times of every file; the names in a folder are listed anew only when the
folder has changed, or had changed so shortly before that a later change may look the same.
"""

import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from mcp_toolserver.runtime.git_known import SETTLED

MOST_ENTRIES = 30_000
"""Names that are looked at; what lies beyond is not watched."""

_LEFT_OUT = frozenset({"node_modules", "__pycache__", "site-packages"})
"""Folders that hold many files which nobody edits, as do those whose names begin with a dot."""

State = Mapping[str, tuple[int, int, int]]
"""By absolute path: inode, size and time of change."""

Kind = Literal[1, 2, 3]
CREATED: Kind = 1
CHANGED: Kind = 2
DELETED: Kind = 3
"""The numbers of the Language Server Protocol."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which files matter."""

    endings: tuple[str, ...]
    """Of names, with their dots."""
    names: Collection[str]


@dataclass(frozen=True, kw_only=True)
class _Listing:
    """What a folder holds, by absolute path."""

    stamp: tuple[int, ...]
    is_settled: bool
    """Whether another change of the folder would show in its stamp."""
    entries: int
    files: tuple[str, ...]
    folders: tuple[str, ...]


class Watch:
    """Remembers the files beneath `folder` that matter, as they were when it looked last.

    What changed within `settled` nanoseconds before it was listed is not relied upon later.
    """

    def __init__(self, folder: str, wanted: Wanted, *, settled: int = SETTLED) -> None:
        self._folder = folder
        self._wanted = wanted
        self._settled = settled
        self._listings: dict[str, _Listing] = {}
        self._state: State = {}

    def __len__(self) -> int:
        """How many files it watches."""
        return len(self._state)

    def look(self) -> list[tuple[str, Kind]]:
        """What has changed since it looked last."""
        listings = dict(self._listed())
        after = {path: state for one in listings.values() for path in one.files if (state := _state(path))}
        before, self._state, self._listings = self._state, after, listings
        # Most often nothing has changed, and that is found out much sooner as a whole.
        return [] if after == before else list(_changes(before, after))

    def _listed(self) -> Iterator[tuple[str, _Listing]]:
        folders = [self._folder]
        left = MOST_ENTRIES
        for folder in folders:
            with suppress(OSError):
                listing = self._listing(folder, left)
                left -= listing.entries
                folders += listing.folders
                yield folder, listing

    def _listing(self, folder: str, most: int) -> _Listing:
        """Raises: OSError: there is no such folder, or it is not for us."""
        now = time.time_ns()
        status = os.stat(folder)
        stamp = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
        known = self._listings.get(folder)
        if known is not None and known.is_settled and known.stamp == stamp and known.entries <= most:
            return known
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
            is_settled=max(status.st_mtime_ns, status.st_ctime_ns) < now - self._settled,
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
    """What became of which file."""
    for path, state in after.items():
        if path not in before:
            yield path, CREATED
        elif before[path] != state:
            yield path, CHANGED
    for path in before:
        if path not in after:
            yield path, DELETED
