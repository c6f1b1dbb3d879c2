"""Which files of a project have changed since they were last looked at.

Language servers leave that to their clients. Only names, sizes and times are looked at, and links are not
followed.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
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

    endings: tuple[str, ...]
    """Of names, with their dots."""
    names: Collection[str]


def look(folder: str, wanted: Wanted) -> State:
    """The files beneath `folder` that matter, as they are now."""
    found: dict[str, tuple[int, int, int]] = {}
    folders = [folder]
    left = MOST_ENTRIES
    for place in folders:
        entries = _entries(place, left)
        left -= len(entries)
        for entry in entries:
            name = entry.name
            if name.endswith(wanted.endings) or name in wanted.names:
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    found[entry.path] = (status.st_ino, status.st_size, status.st_mtime_ns)
            elif name[0] != "." and name not in _LEFT_OUT and entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
    return found


def _entries(folder: str, most: int) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as found:
            return list(islice(found, most))
    except OSError:
        return []


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
