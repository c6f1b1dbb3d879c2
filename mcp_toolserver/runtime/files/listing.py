"""Lists folders without opening anything but folders and their ignore files.

Every folder is opened through the workspace by its own name, so a link that replaces it shows nothing. Kinds
of entries come from the directory, so that a FIFO or a device is not opened.
"""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

from mcp_toolserver.capabilities.files import (
    CanonicalPath,
    EntryKind,
    FolderContent,
    FolderEntry,
    FolderQuery,
)
from mcp_toolserver.errors import ToolError
from mcp_toolserver.runtime.files.os_errors import translate
from mcp_toolserver.runtime.search.display_path import inside, showable
from mcp_toolserver.runtime.search.ignore_rules import (
    NEVER_WANTED,
    IgnoreFileReader,
    IgnoreRules,
    rules_above,
)

_NAMES = 100_000
"""Entries read of one folder."""

_KINDS: Mapping[int, EntryKind] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
}


class Listable(IgnoreFileReader, Protocol):
    """The part of the workspace that a listing needs."""

    def open_dir(self, path: CanonicalPath) -> int: ...
    def is_hidden(self, path: CanonicalPath) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class _Folder:
    """A folder to list."""

    relative: str
    """Its path relative to the requested one; `.` for that itself."""
    rules: IgnoreRules | None = None
    """The ignore rules of the folders above it; None when they do not count."""


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
    rules: IgnoreRules | None = None


def folders(workspace: Listable, query: FolderQuery) -> dict[str, FolderContent]:
    """See `Files.folders`."""
    return _Listing(workspace, query).run()


class _Listing:
    def __init__(self, workspace: Listable, query: FolderQuery) -> None:
        self._workspace = workspace
        self._query = query
        self._left = query.limit
        self._rules = None if query.ignored else rules_above(workspace, query.path)

    def run(self) -> dict[str, FolderContent]:
        content, level = self._looked_into(_Folder(relative=".", rules=self._rules))
        found = {".": content}
        for _ in range(self._query.depth - 1):
            deeper: list[_Folder] = []
            for folder in level:
                if self._left <= 0:
                    return found
                try:
                    content, more = self._looked_into(folder)
                except ToolError as error:
                    content, more = FolderContent(entries=(), total=0, error=str(error)), []
                found[showable(folder.relative)] = content
                deeper += more
            level = deeper
        return found

    def _looked_into(self, folder: _Folder) -> tuple[FolderContent, list[_Folder]]:
        """The content of a folder, and those of its folders that are listed."""
        query = self._query
        path = query.path if folder.relative == "." else inside(query.path, folder.relative)
        fd = self._workspace.open_dir(path)
        try:
            with translate(path):
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
            _Folder(
                relative=_child_path(folder.relative, name.raw),
                rules=names.rules and names.rules.enter(name.raw),
            )
            for name in given
            if name.kind == "folder"
        ]

    def _names(self, fd: int, path: CanonicalPath, folder: _Folder) -> _Names:
        found = _Names()
        with os.scandir(fd) as entries:
            first = list(islice(entries, _NAMES))
            found.complete = next(entries, None) is None
        if folder.rules is not None:
            found.rules = folder.rules.read(self._workspace, path, frozenset(entry.name for entry in first))
        for entry in first:
            if self._workspace.is_hidden(inside(path, entry.name)):
                continue
            if entry.name.startswith(".") and not self._query.hidden:
                found.dots += 1
                continue
            name = _Name(raw=entry.name, kind=_kind(entry))
            if not _is_ignored(name, found.rules):
                found.wanted.append(name)
        return found


def _is_ignored(name: _Name, rules: IgnoreRules | None) -> bool:
    if rules is None:
        return False
    return name.raw in NEVER_WANTED or rules.ignores(name.raw, is_folder=name.kind == "folder")


def _child_path(folder: str, name: str) -> str:
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
