"""What folders hold, looked at without opening anything but folders.

Every folder is opened beneath the root by its own name, so that a link swapped in meanwhile shows nothing.
What lies in it is told by its directory entry, so that a FIFO or a device does not notice.
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from mcp_toolserver.capabilities.files import (
    CanonicalPath,
    EntryKind,
    FolderContent,
    FolderEntry,
    FolderQuery,
)
from mcp_toolserver.errors import ToolError
from mcp_toolserver.runtime.ignore_rules import Readable, inherited
from mcp_toolserver.runtime.refusals import explained
from mcp_toolserver.runtime.search_names import inside, showable

if TYPE_CHECKING:
    from mcp_toolserver.runtime.fallback.ignoring import Ignoring, Level

_NAMES = 100_000
"""Of one folder; more are not looked at."""

_KINDS: Mapping[int, EntryKind] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
}


class Listable(Readable, Protocol):
    """What is asked of the workspace."""

    def folder(self, path: CanonicalPath) -> int: ...
    def is_hidden(self, path: CanonicalPath) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class _Folder:
    """A folder to look into."""

    inner: str
    """Its path beneath the listed one; `.` for that itself."""
    above: "Level | None" = None
    """The ignore rules of the folders above it."""


@dataclass(frozen=True, kw_only=True)
class _Name:
    """A wanted name in a folder."""

    raw: str
    kind: EntryKind


@dataclass
class _Names:
    """The names of one folder."""

    wanted: list[_Name] = field(default_factory=list[_Name])
    dots: int = 0
    complete: bool = True
    rules: "Level | None" = None


def folders(places: Listable, query: FolderQuery) -> dict[str, FolderContent]:
    """See `Files.folders`."""
    return _Listing(places, query).run()


class _Listing:
    def __init__(self, places: Listable, query: FolderQuery) -> None:
        self._places = places
        self._query = query
        self._left = query.limit
        self._ignoring = None if query.ignored else _ignoring(places, query)

    def run(self) -> dict[str, FolderContent]:
        content, level = self._looked_into(_Folder(inner="."))
        found = {".": content}
        for _ in range(self._query.depth - 1):
            below: list[_Folder] = []
            for folder in level:
                if self._left <= 0:
                    return found
                try:
                    content, more = self._looked_into(folder)
                except ToolError as error:
                    content, more = FolderContent(entries=(), total=0, error=str(error)), []
                found[showable(folder.inner)] = content
                below += more
            level = below
        return found

    def _looked_into(self, folder: _Folder) -> tuple[FolderContent, list[_Folder]]:
        """What a folder holds, and the folders among that which is given."""
        query = self._query
        path = query.path if folder.inner == "." else inside(query.path, folder.inner)
        fd = self._places.folder(path)
        try:
            with explained(path):
                names = self._names(fd, path, folder)
                count = min(self._left, query.each)
                given = sorted(names.wanted, key=lambda name: name.raw)[query.skip : query.skip + count]
                entries = tuple(_entry(fd, name, details=query.details) for name in given)
        finally:
            os.close(fd)
        self._left -= len(entries)
        content = FolderContent(
            entries=entries, total=len(names.wanted), dots=names.dots, complete=names.complete
        )
        return content, [
            _Folder(inner=_beneath(folder.inner, name.raw), above=names.rules)
            for name in given
            if name.kind == "folder"
        ]

    def _names(self, fd: int, path: CanonicalPath, folder: _Folder) -> _Names:
        found = _Names()
        if self._ignoring is not None:
            base = "" if folder.inner == "." else f"{folder.inner}/"
            found.rules = self._ignoring.level(fd, base, folder.above)
        with os.scandir(fd) as entries:
            for entry in islice(entries, _NAMES):
                if self._places.is_hidden(inside(path, entry.name)):
                    continue
                if entry.name.startswith(".") and not self._query.hidden:
                    found.dots += 1
                    continue
                name = _Name(raw=entry.name, kind=_kind(entry))
                if not self._is_ignored(name, folder, found.rules):
                    found.wanted.append(name)
            found.complete = next(entries, None) is None
        return found

    def _is_ignored(self, name: _Name, folder: _Folder, rules: "Level | None") -> bool:
        path = _beneath(folder.inner, name.raw) + "/" * (name.kind == "folder")
        return self._ignoring is not None and self._ignoring.leaves_out(path, name.raw, rules)


def _ignoring(places: Listable, query: FolderQuery) -> "Ignoring":
    # Only those who want ignore rules pay for the import of the library that reads them.
    from mcp_toolserver.runtime.fallback.ignoring import ruled_by

    return ruled_by(inherited(places, query.path), hidden=not query.hidden)


def _beneath(folder: str, name: str) -> str:
    return name if folder == "." else f"{folder}/{name}"


def _kind(entry: os.DirEntry[str]) -> EntryKind:
    if entry.is_file(follow_symlinks=False):
        return "file"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    if entry.is_symlink():
        return "link"
    try:
        return _KINDS.get(stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode), "device")
    except OSError:
        return "device"


def _entry(folder: int, name: _Name, *, details: bool) -> FolderEntry:
    size = changed = None
    if details:
        try:
            status = os.stat(name.raw, dir_fd=folder, follow_symlinks=False)
            size, changed = status.st_size, status.st_mtime
        except OSError:  # gone meanwhile
            pass
    return FolderEntry(name=showable(name.raw), kind=name.kind, size=size, changed=changed)
