"""Lists folders without opening anything but folders and their ignore files.

Every folder is opened through the workspace by its own name, so a link that replaces it shows nothing. Kinds
of entries come from the directory, so that a FIFO or a device is not opened.
"""

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice

from mcp_toolserver.capabilities.files import EntryKind, FolderContent, FolderEntry, FolderQuery
from mcp_toolserver.errors import ToolError
from mcp_toolserver.runtime.files.os_errors import translate
from mcp_toolserver.runtime.files.path_resolver import inside, showable
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.search.ignore_rules import NEVER_WANTED, IgnoreRules, rules_above

_NAMES = 100_000
"""Entries read of one folder."""

_KINDS: Mapping[int, EntryKind] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
}

_Folder = tuple[str, IgnoreRules | None]
"""The path of a folder relative to the listed one, `.` for that itself, and the ignore rules of the folders
above it; None when they do not count."""


def folders(workspace: Workspace, query: FolderQuery) -> dict[str, FolderContent]:
    rules = None if query.ignored else rules_above(workspace, query.path)
    found: dict[str, FolderContent] = {}
    level: list[_Folder] = [(".", rules)]
    left = query.limit
    for _ in range(query.depth):
        deeper: list[_Folder] = []
        for folder in level:
            if found and left <= 0:
                return found
            try:
                content, inner = _looked_into(workspace, query, folder, min(left, query.each))
            except ToolError as error:
                if not found:
                    raise
                content, inner = FolderContent(entries=(), total=0, error=str(error)), []
            found[showable(folder[0])] = content
            left -= len(content.entries)
            deeper += inner
        level = deeper
    return found


def _looked_into(
    workspace: Workspace, query: FolderQuery, folder: _Folder, count: int
) -> tuple[FolderContent, list[_Folder]]:
    """At most `count` entries of a folder, and those of its folders that are listed."""
    relative, rules = folder
    path = query.path if relative == "." else inside(query.path, relative)
    fd = workspace.open_dir(path)
    try:
        with translate(path):
            with os.scandir(fd) as entries:
                first = list(islice(entries, _NAMES))
                is_complete = next(entries, None) is None
            if rules is not None:
                rules = rules.read(workspace, path, frozenset(entry.name for entry in first))
            seen = [entry for entry in first if not workspace.is_hidden(inside(path, entry.name))]
            named = [entry for entry in seen if query.hidden or not entry.name.startswith(".")]
            kinds: dict[str, EntryKind] = {entry.name: _kind(entry) for entry in named}
            wanted = sorted(kinds)
            if rules is not None:
                kept = (name for name in wanted if name not in NEVER_WANTED)
                wanted = [name for name in kept if not rules.ignores(name, is_folder=kinds[name] == "folder")]
            given = wanted[query.skip : query.skip + count]
            listed = tuple(_entry(fd, name, kinds[name], details=query.details) for name in given)
    finally:
        os.close(fd)
    content = FolderContent(
        entries=listed, total=len(wanted), dots=len(seen) - len(named), complete=is_complete
    )
    return content, [
        (name if relative == "." else f"{relative}/{name}", rules and rules.enter(name))
        for name in given
        if kinds[name] == "folder"
    ]


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


def _entry(folder: int, name: str, kind: EntryKind, *, details: bool) -> FolderEntry:
    size = changed = None
    if details:
        with suppress(OSError):  # gone meanwhile
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            size, changed = status.st_size, status.st_mtime
    return FolderEntry(name=showable(name), kind=kind, size=size, changed=changed)
