"""Where a file lies or will lie, and who may change it there."""

import os
from dataclasses import dataclass

from mcp_toolserver.errors import Conflict, Denied
from mcp_toolserver.runtime.atomic import Old
from mcp_toolserver.runtime.beneath import Engine
from mcp_toolserver.runtime.roots import Root


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a file lies or will lie."""

    engine: Engine
    root: Root
    folder: str
    """Relative to `root`, links resolved; `.` for the root itself."""
    name: str

    @property
    def inner(self) -> str:
        """The path relative to `root`."""
        return self.name if self.folder == "." else f"{self.folder}/{self.name}"

    @property
    def absolute(self) -> str:
        """The path that all spellings of the file have in common."""
        return self.root.at(self.inner)


def refuse_read_only(path: str, old: Old, folder: int, name: str) -> None:
    """A new file could take the place of a read-only one, but whoever made it read-only did not want that.

    Raises:
        Denied: it is read-only.
    """
    own = os.access in os.supports_effective_ids
    if not old.status.st_mode & 0o222 or not os.access(name, os.W_OK, dir_fd=folder, effective_ids=own):
        raise Denied(f"'{path}' is read-only. Ask the user to make it writable, or write another file.")


def changed_meanwhile(path: str) -> Conflict:
    """What is said when a file is not the one that was read."""
    return Conflict(
        f"'{path}' was changed by somebody meanwhile; nothing was written. Read it again, then retry."
    )
