"""The place where a file is written, and checks before it is."""

import os
from dataclasses import dataclass

from mcp_toolserver.errors import Conflict, Denied
from mcp_toolserver.runtime.files.atomic_write import Original, Recording
from mcp_toolserver.runtime.files.path_resolver import PathResolver
from mcp_toolserver.runtime.files.root import Root
from mcp_toolserver.text.file_names import NameComparison, folded


@dataclass(frozen=True, kw_only=True)
class WriteTarget:
    """The open root, folder and name of a file to write."""

    resolver: PathResolver
    root: Root
    folder: str
    """Relative to `root`, links resolved; `.` for the root itself."""
    name: str
    recording: Recording | None = None
    """Records the temporary files of a write."""
    is_temporary: bool = False
    """Whether it lies in the temporary folder of a session, where nothing is kept for undo."""

    comparison: NameComparison = NameComparison.EXACT
    """How `name` is compared with others."""

    @property
    def relative(self) -> str:
        """The path relative to `root`."""
        return self.name if self.folder == "." else f"{self.folder}/{self.name}"

    @property
    def absolute(self) -> str:
        """The absolute path, the same for all spellings of the file."""
        return self.root.at(self.relative)

    @property
    def lock_name(self) -> str:
        """The absolute path, the same for all names under which a file can be created."""
        return folded(self.absolute, self.comparison)


def refuse_read_only(path: str, old: Original, folder: int, name: str) -> None:
    """Refuse to replace a read-only file, which a rename could do, because its owner protected it.

    Raises:
        Denied: if it is read-only.
    """
    own = os.access in os.supports_effective_ids
    if not old.status.st_mode & 0o222 or not os.access(name, os.W_OK, dir_fd=folder, effective_ids=own):
        raise Denied(f"'{path}' is read-only. Ask the user to make it writable, or write another file.")


def changed_meanwhile(path: str) -> Conflict:
    """The error for a file that is not the one that was read."""
    return Conflict(
        f"'{path}' was changed by somebody meanwhile; nothing was written. Read it again, then retry."
    )
