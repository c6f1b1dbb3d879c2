"""What is known of repositories by now, and whether it still holds.

To ask git where a repository is and what its configuration says takes longer than most questions. The answers
depend on a few files; as long as those are what they were, nobody has to be asked again. A configuration that
includes other files is asked for every time: there is no end to what it may depend on.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from mcp_toolserver.runtime.git_config import settings

MOST = 64
"""Folders that are remembered."""

SETTLED = 2_000_000_000
"""Nanoseconds after which no later change can look the same, for want of ticks of the file system's clock."""

_INCLUDES = ("include.", "includeif.")


@dataclass(frozen=True, kw_only=True)
class Where:
    """A repository."""

    own: str
    """Its .git folder, absolute, as all of these."""
    common: str
    """What it shares with other work trees; the same as `own` where there are none."""
    top: str
    """Where its files are."""
    listing: bytes
    """Its configuration, with that of the user, as `git config --list -z` prints it."""

    @property
    def pinned(self) -> tuple[str, ...]:
        """Arguments by which git takes this repository, even if another one appears meanwhile."""
        return f"--git-dir={self.own}", f"--work-tree={self.top}"


State = tuple[int, ...] | None
Seen = dict[str, State]
"""What the answers depend on: by path, what lies there."""


class Known:
    """The repositories of folders, each with what was seen when it was asked."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Where, Seen]] = {}

    def get(self, folder: str) -> Where | None:
        """The repository of `folder`; None when that is not known, or has changed."""
        if (kept := self._kept.get(folder)) is None:
            return None
        where, before = kept
        if all(_state(path) == state for path, state in before.items()):
            return where
        del self._kept[folder]
        return None

    def keep(self, folder: str, where: Where, before: Seen) -> None:
        """Remember an answer, unless it includes what was not looked at."""
        if any(name.startswith(_INCLUDES) for name, _ in settings(where.listing)):
            return
        while len(self._kept) >= MOST:
            del self._kept[next(iter(self._kept))]
        self._kept[folder] = where, before


def seen(folder: str, where: Where, home: str) -> Seen:
    """All that the answers for `folder` depend on."""
    return {path: _state(path) for path in _depends_on(folder, where, home)}


def settled(before: Seen, by: int) -> bool:
    """Whether nothing of that has changed since `by`, in nanoseconds since the epoch."""
    return all(state is None or state[-1] < by for state in before.values())


def _depends_on(folder: str, where: Where, home: str) -> Iterator[str]:
    yield folder
    # A repository that appears nearer is the one that is meant.
    while folder not in (where.top, "/"):
        yield f"{folder}/.git"
        folder = os.path.dirname(folder)
    yield f"{where.top}/.git"
    yield where.own
    yield f"{where.own}/commondir"
    for place in dict.fromkeys((where.own, where.common)):
        yield f"{place}/config"
        yield f"{place}/config.worktree"
    yield f"{home}/.gitconfig"
    yield f"{home}/.config/git/config"


def _state(path: str) -> State:
    """What lies at `path`: of a folder which one it is, as much is made in it that does not matter; None for
    nothing that can be seen. The time of its last change comes last."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    identity = (found.st_dev, found.st_ino, found.st_mode, found.st_uid)
    if stat.S_ISDIR(found.st_mode):
        return (*identity, 0)
    return (*identity, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
