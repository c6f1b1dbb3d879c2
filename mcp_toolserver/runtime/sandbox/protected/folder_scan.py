"""Every folder of a root, remembered between scans, so that a scan lists only what has changed.

A folder is identified by its device, inode and status change time, which no program can set; creating,
renaming and deleting an entry changes it. No folder is left out for its depth, name or number: what no scan
looks into would be where a command prepares what it moves into place later.
"""

import errno
import os
import stat
from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Literal

from mcp_toolserver.runtime.sandbox.protected.git_dir import LONGEST_PATH, is_git_directory
from mcp_toolserver.runtime.sandbox.protected.names import protected_name
from mcp_toolserver.runtime.sandbox.protected.open_nofollow import EntryKind, entry_kind
from mcp_toolserver.runtime.sandbox.protected.quarantine import is_aside
from mcp_toolserver.runtime.sandbox.protected.settled_change import UNSETTLED, settled_change

Kind = EntryKind | Literal["unreadable", "too deep", "repository"]
"""The last three are folders whatever their names: two that cannot be looked into, and what git takes for a
repository."""

_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_REOPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
"""For a link in /proc, which leads to what is open already."""

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


@dataclass(frozen=True, slots=True)
class _Folder:
    device: int
    inode: int
    changed: int
    """See `settled_change`."""
    folders: tuple[str, ...] = ()
    """The paths of the folders in it, from the root."""
    found: tuple[tuple[str, Kind], ...] = ()
    """The paths of what has a protected name, or cannot be looked into."""
    is_closed: bool = False
    """Whether it cannot be read."""
    has_head: bool = False
    """Whether it may be a repository."""


class FolderScan:
    """What is known of one root. Only `update` reads the file system."""

    def __init__(self, root: int, writable_names: Container[str] = ()) -> None:
        """Scan the folder open as `root` for the first time. It has to stay open.

        The operator excepted `writable_names`.
        """
        self._root = root
        self._writable_names = writable_names
        self._folders: dict[str, _Folder] = {}
        """By path from the root, which itself is the empty path; each after the one it lies in."""
        self._found: tuple[tuple[str, Kind], ...] | None = None
        """What `found` gave; None when it has to be collected again."""
        self._repositories: tuple[tuple[str, Kind], ...] = ()
        self._add("", make_readable=False)
        self._find_repositories()

    def __len__(self) -> int:
        """How many folders there are, those within protected folders not counted."""
        return len(self._folders)

    def count(self, folder: str) -> int:
        """How many of them lie in `folder`, a path from the root, or are that folder."""
        if not folder:
            return len(self)
        return sum(path == folder or path.startswith(f"{folder}/") for path in self._folders)

    def found(self) -> tuple[tuple[str, Kind], ...]:
        """The paths of all that has a protected name, of folders that were set aside or cannot be looked
        into, and of repositories."""
        if self._found is None:
            self._found = tuple(entry for folder in self._folders.values() for entry in folder.found)
        return (*self._found, *self._repositories)

    def update(self, *, make_readable: bool) -> None:
        """Look at every known folder again, and list those that changed.

        With `make_readable`, a folder of this user that changed and cannot be read is made readable, and one
        that was read before counts as unchanged until it can be read again.
        """
        changed = self._changed()
        if changed:
            self._found = None
        for path in changed:
            # It may have gone meanwhile, with the folder it lies in.
            if path in self._folders:
                self._refresh(path, make_readable=make_readable)
        self._find_repositories()

    def _find_repositories(self) -> None:
        # Looked for each time: what is written into a file does not change the folder.
        candidates = [path for path, folder in self._folders.items() if folder.has_head]
        found = (path for path in candidates if is_git_directory(path, self._root))
        self._repositories = tuple((path, "repository") for path in found)

    def _changed(self) -> list[str]:
        """The paths of folders that have to be listed again: in one loop, because there may be 200,000."""
        stat_of, root = os.stat, self._root
        changed: list[str] = []
        for path, folder in self._folders.items():
            try:
                # With no permissions, the root cannot be reached by a path from itself.
                status = stat_of(path, dir_fd=root, follow_symlinks=False) if path else os.fstat(root)
            except OSError:
                changed.append(path)
                continue
            if (
                status.st_ctime_ns != folder.changed
                or status.st_ino != folder.inode
                or status.st_dev != folder.device
            ):
                changed.append(path)
        return changed

    def _refresh(self, path: str, *, make_readable: bool) -> None:
        known = self._folders[path]
        try:
            now = self._listed(path, make_readable=make_readable)
        except OSError:
            # To forget it would make what it holds look new when it can be read again.
            self._folders[path] = replace(known, changed=UNSETTLED)
            return
        if now is None or (now.device, now.inode) != (known.device, known.inode):
            self._drop(path)
            if now is not None:
                self._add(path, make_readable=make_readable)
            return
        if now.is_closed:
            now = replace(known, changed=UNSETTLED) if make_readable else _closed_again(known, now)
        self._replace(path, now, make_readable=make_readable)

    def _replace(self, path: str, now: _Folder, *, make_readable: bool) -> None:
        known, self._folders[path] = self._folders[path], now
        still = frozenset(now.folders)
        for folder in known.folders:
            if folder not in still:
                self._drop(folder)
        for folder in now.folders:
            if folder not in self._folders:
                self._add(folder, make_readable=make_readable)

    def _add(self, path: str, *, make_readable: bool) -> None:
        """Add a folder with all in it. What cannot be read now is tried again by every update."""
        todo = [path]
        while todo:
            here = todo.pop()
            try:
                folder = self._listed(here, make_readable=make_readable)
            except OSError:
                folder = _Folder(0, 0, UNSETTLED)
            if folder is not None:
                self._folders[here] = folder
                todo += folder.folders

    def _drop(self, path: str) -> None:
        todo = [path]
        while todo:
            folder = self._folders.pop(todo.pop(), None)
            if folder is not None:
                todo += folder.folders

    def _listed(self, path: str, *, make_readable: bool) -> _Folder | None:
        """What is in a folder; None when it has gone or is none.

        Raises:
            OSError: nobody can tell.
        """
        if len(os.fsencode(path)) > LONGEST_PATH:
            return _Folder(0, 0, UNSETTLED, found=((path, "too deep"),))
        try:
            return self._read(path)
        except PermissionError:
            # Commands could open a closed root, and then reach what is in it.
            if not make_readable and path:
                return self._closed(path)
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise
        try:
            self._make_readable(path)
            return self._read(path)
        except OSError as error:
            return None if error.errno in _GONE else self._closed(path)

    def _read(self, path: str) -> _Folder:
        descriptor = os.open(
            path or f"/proc/self/fd/{self._root}", _LIST if path else _REOPEN, dir_fd=self._root
        )
        try:
            status = os.fstat(descriptor)
            changed = settled_change(status)
            folders: list[str] = []
            found: list[tuple[str, Kind]] = []
            folder, has_head = path.rpartition("/")[2], False
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    name = protected_name(entry.name, folder)
                    is_folder = entry.is_dir(follow_symlinks=False)
                    if (name and name not in self._writable_names) or (is_folder and is_aside(entry.name)):
                        found.append((below(path, entry.name), entry_kind(entry)))
                    elif is_folder:
                        folders.append(below(path, entry.name))
                    elif entry.name.lower() == "head":
                        has_head = True
        finally:
            os.close(descriptor)
        return _Folder(
            status.st_dev,
            status.st_ino,
            changed,
            folders=tuple(folders),
            found=tuple(found),
            has_head=has_head,
        )

    def _make_readable(self, path: str) -> None:
        # Opened with O_PATH, a folder that may not be read can be had without following a link.
        folder = os.open(path, _LIST | os.O_PATH, dir_fd=self._root) if path else os.dup(self._root)
        try:
            os.chmod(f"/proc/self/fd/{folder}", stat.S_IMODE(os.fstat(folder).st_mode) | stat.S_IRWXU)
        finally:
            os.close(folder)

    def _closed(self, path: str) -> _Folder:
        """A folder that cannot be read. Commands, which run as the same user, could open it if it is theirs.
        In that of another user they reach what they know or make if they may enter it.

        Raises:
            OSError: what it lies in is closed as well.
        """
        status = os.stat(path, dir_fd=self._root, follow_symlinks=False) if path else os.fstat(self._root)
        is_reached = path and (status.st_uid == os.geteuid() or os.access(path, os.X_OK, dir_fd=self._root))
        return _Folder(
            status.st_dev,
            status.st_ino,
            status.st_ctime_ns,
            found=((path, "unreadable"),) if is_reached else (),
            is_closed=True,
        )


def _closed_again(known: _Folder, now: _Folder) -> _Folder:
    """A folder that was known and cannot be read any more."""
    found = (*(entry for entry in known.found if entry not in now.found), *now.found)
    return replace(now, folders=known.folders, found=found, has_head=known.has_head)


def below(folder: str, name: str) -> str:
    """`name` in `folder`, which may be the root itself."""
    return f"{folder}/{name}" if folder else name
