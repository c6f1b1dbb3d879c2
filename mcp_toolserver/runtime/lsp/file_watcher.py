"""Detects changed files of a project by polling, because language servers leave that to their clients.

It compares names, sizes and times, and does not follow links.
"""

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from itertools import islice
from typing import Literal

MOST_ENTRIES = 30_000
"""Largest number of entries; others are not watched."""

_LEFT_OUT = frozenset({"node_modules", "__pycache__", "site-packages"})
"""Folders that are skipped, as are hidden ones."""

State = Mapping[str, tuple[int, int, int]]
"""Inode, size and modification time by absolute path."""

Kind = Literal[1, 2, 3]
CREATED: Kind = 1
CHANGED: Kind = 2
DELETED: Kind = 3
"""The values of the Language Server Protocol."""


class FileWatcher:
    """Watches the files below `folder` whose names end with one of `endings` or are among `names`."""

    def __init__(self, folder: str, endings: tuple[str, ...], names: Collection[str]) -> None:
        self._folder = folder
        self._endings = endings
        self._names = names
        self._state: State = {}

    def __len__(self) -> int:
        """The number of watched files."""
        return len(self._state)

    def poll(self) -> list[tuple[str, Kind]]:
        """Return the changes since the last poll."""
        before, after = self._state, self._scan()
        self._state = after
        # Comparing everything at once is much faster in the usual case of no change.
        if after == before:
            return []
        changed: list[tuple[str, Kind]] = [
            (path, CHANGED if path in before else CREATED)
            for path in after
            if after[path] != before.get(path)
        ]
        changed.extend((path, DELETED) for path in before if path not in after)
        return changed

    def _scan(self) -> State:
        files: list[str] = []
        folders = [self._folder]
        left = MOST_ENTRIES
        for folder in folders:
            with suppress(OSError), os.scandir(folder) as found:
                for entry in islice(found, left):
                    left -= 1
                    name = entry.name
                    if name.endswith(self._endings) or name in self._names:
                        files.append(entry.path)
                    elif name[0] != "." and entry.is_dir(follow_symlinks=False) and name not in _LEFT_OUT:
                        folders.append(entry.path)
        return {path: state for path in files if (state := _state(path))}


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
