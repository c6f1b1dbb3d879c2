"""Which files of a project have changed since they were last looked at.

Language servers leave that to their clients. Only names, sizes and times are looked at, and links are not
followed.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Literal

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

    endings: Collection[str]
    names: Collection[str]

    def __call__(self, name: str) -> bool:
        return name in self.names or name.rpartition(".")[2].lower() in self.endings


def look(folder: str, wanted: Wanted) -> State:
    """The files beneath `folder` that matter, as they are now."""
    found: dict[str, tuple[int, int, int]] = {}
    for entry in islice(_entries(folder), MOST_ENTRIES):
        if not wanted(entry.name):
            continue
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        found[entry.path] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return found


def changes(before: State, after: State) -> Iterator[tuple[str, Kind]]:
    """What became of which file."""
    for path, state in after.items():
        if path not in before:
            yield path, CREATED
        elif before[path] != state:
            yield path, CHANGED
    for path in before:
        if path not in after:
            yield path, DELETED


def _entries(folder: str) -> Iterator["os.DirEntry[str]"]:
    """Every file beneath a folder, upper levels first."""
    folders = [folder]
    for place in folders:
        try:
            with os.scandir(place) as found:
                entries = list(found)
        except OSError:
            continue
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                yield entry
            elif _is_looked_into(entry.name) and len(folders) < MOST_ENTRIES:
                folders.append(entry.path)


def _is_looked_into(folder: str) -> bool:
    return not folder.startswith(".") and folder not in _LEFT_OUT
