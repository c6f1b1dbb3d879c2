"""Caches the location and configuration of repositories.

Reading both from git takes longer than most commands. They depend on a few files; an entry is valid while
those are unchanged. Configurations with includes are not cached, because they can depend on any file.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from mcp_toolserver.runtime.git.hardening import parse_config

MOST = 64
"""Largest number of cached folders."""

RACY_WINDOW_NS = 2_000_000_000
"""Files changed within this time can change again with the same timestamp ("racily clean" in git's terms)."""

_INCLUDES = ("include.", "includeif.")


@dataclass(frozen=True, kw_only=True)
class RepositoryPaths:
    """The location and configuration of a repository."""

    git_dir: str
    """The .git folder, absolute as all paths here."""
    common_dir: str
    """The folder shared with linked work trees; equal to `git_dir` without them."""
    top: str
    """The work tree."""
    config: bytes
    """The effective configuration, as `git config --list -z` prints it."""

    @property
    def pinned(self) -> tuple[str, ...]:
        """Arguments that bind git to this repository, even if another one appears in between."""
        return f"--git-dir={self.git_dir}", f"--work-tree={self.top}"


FileState = tuple[int, ...] | None
Snapshot = dict[str, FileState]
"""The state of each path that a cache entry depends on."""


class RepositoryCache:
    """Cached repositories by folder, each with the snapshot that validates it."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[RepositoryPaths, Snapshot]] = {}

    def get(self, folder: str) -> RepositoryPaths | None:
        """Return the repository of `folder`; None if it is not cached or has changed."""
        if (entry := self._entries.get(folder)) is None:
            return None
        location, before = entry
        if all(_state(path) == state for path, state in before.items()):
            return location
        del self._entries[folder]
        return None

    def keep(self, folder: str, location: RepositoryPaths, before: Snapshot) -> None:
        """Cache a repository unless its configuration includes other files."""
        if any(name.startswith(_INCLUDES) for name, _ in parse_config(location.config)):
            return
        while len(self._entries) >= MOST:
            del self._entries[next(iter(self._entries))]
        self._entries[folder] = location, before


def take_snapshot(folder: str, location: RepositoryPaths, home: str) -> Snapshot:
    """Return the state of everything that the entry for `folder` depends on."""
    return {path: _state(path) for path in _dependencies(folder, location, home)}


def unchanged_since(before: Snapshot, by: int) -> bool:
    """Whether nothing in the snapshot changed after `by`, in nanoseconds since the epoch."""
    return all(state is None or state[-1] < by for state in before.values())


def _dependencies(folder: str, location: RepositoryPaths, home: str) -> Iterator[str]:
    yield folder
    # A new repository in a closer parent folder takes precedence.
    while folder not in (location.top, "/"):
        yield f"{folder}/.git"
        folder = os.path.dirname(folder)
    yield f"{location.top}/.git"
    yield location.git_dir
    yield f"{location.git_dir}/commondir"
    for place in dict.fromkeys((location.git_dir, location.common_dir)):
        yield f"{place}/config"
        yield f"{place}/config.worktree"
    yield f"{home}/.gitconfig"
    yield f"{home}/.config/git/config"


def _state(path: str) -> FileState:
    """Return the state of `path`, its last change last; None if it is missing. For a folder only its identity
    counts, since files are often created in it."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    identity = (found.st_dev, found.st_ino, found.st_mode, found.st_uid)
    if stat.S_ISDIR(found.st_mode):
        return (*identity, 0)
    return (*identity, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
