"""Changes files in one transaction: all of them or none. A reader, or a crash, sees the old content of a file
or the new one, never a part.

What can fail happens first, under temporary names: folders are made, contents written and synced. Then
each file is renamed into place while its old content keeps a backup name in the same folder; when one rename
fails, the files before it get their old content back. A crash in between leaves the backups, `*.old`. A file
that is changed alone needs no backup. Other hard links of a file keep the old content.

Temporary names are unguessable and lie in the folder of the file. All steps are relative to an open folder,
so that nobody can redirect them.
"""

import os
import secrets
import stat
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass

from mcp_toolserver.capabilities.files import FileChange
from mcp_toolserver.errors import Conflict, Denied, ToolError
from mcp_toolserver.runtime.files.libc import copy_attributes, rename_new
from mcp_toolserver.runtime.files.os_errors import Changed, translate
from mcp_toolserver.runtime.files.path_resolver import FOLDER, Escape, ResolvedPath, Walk
from mcp_toolserver.runtime.files.root import LocatedPath
from mcp_toolserver.stores.disk import sync
from mcp_toolserver.stores.running_servers import RunningServer
from mcp_toolserver.text.file_names import folded

_PREFIX, _SUFFIX = ".mcp-toolserver-", ".tmp"

_PERMISSION_BITS = 0o1777
"""A change of content clears set-user-ID and set-group-ID, as a write in place does."""

_BOUND_TO_CONTENT = frozenset({"security.capability", "security.ima", "security.evm"})
"""Attributes that vouch for the old content."""

FileId = tuple[int, ...]
"""Identifies a file with its content; see `file_id`."""


@dataclass(frozen=True, kw_only=True)
class Original:
    """The file to replace, as it was read."""

    fd: int
    status: os.stat_result

    @property
    def id(self) -> FileId:
        """Identifies the file with the content that was read."""
        return file_id(self.status)

    def check(self, folder: int, name: str) -> None:
        """Raises: Changed: it no longer has its name, or other content."""
        try:
            now = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            raise Changed from None
        if file_id(now) != self.id:
            raise Changed


def file_id(status: os.stat_result) -> FileId:
    """Identifies a file with its content. The inode number alone is not enough, because it can be reused."""
    return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)


@dataclass(frozen=True, kw_only=True)
class WriteTarget:
    """Where a file is written."""

    resolver: Walk
    path: LocatedPath
    recording: RunningServer | None = None
    """Records the temporary files of a write."""
    is_temporary: bool = False
    """Whether it lies in the temporary folder of a session, where nothing is kept for undo."""

    @property
    def absolute(self) -> str:
        """The absolute path, the same for all spellings of the file."""
        return self.path.spellings[-1]

    @property
    def lock_name(self) -> str:
        """The absolute path, the same for all names under which a file can be created."""
        return folded(self.absolute, self.path.comparison)


@dataclass(frozen=True)
class PlannedChange:
    """One file to change."""

    change: FileChange
    target: WriteTarget
    old: Original | None
    """The file as it was read; None when there was none."""
    like: Original | None
    """The file whose metadata the new content gets."""


def apply_changes(changes: Sequence[PlannedChange], *, alone: bool) -> list[FileId]:
    """Make all changes, or none. Returns what identifies the new files. `alone` is for a single change that
    replaces or creates a file.

    Raises:
        ToolError: if one fails. The text says which, and what could not be restored.
    """
    with ExitStack() as stack:
        try:
            ready = [stack.enter_context(_prepare(change)) for change in changes]
            _commit(ready, alone=alone)
        except ToolError as error:
            if alone or isinstance(error, _NotUndone):
                raise
            raise type(error)(f"{error} No file was changed.") from None
        return [one.new_id for one in ready if one.new_id is not None]


class _NotUndone(Conflict):
    """Some changes are in place, and could not be undone."""


class _Prepared:
    """A change with its new content under a temporary name, in an open folder."""

    def __init__(self, planned: PlannedChange, folder: int, name: str, temporary: str | None) -> None:
        self.change = planned.change
        self._old = planned.old
        self._name = name
        self._folder = folder
        self._temporary = temporary
        new = os.stat(temporary, dir_fd=folder, follow_symlinks=False) if temporary else None
        self.new_id = new and file_id(new)
        """Identifies the new file; None if the file is to be removed."""
        self._backup = ""
        self._is_linked = False
        self._is_placed = False

    def commit(self, *, alone: bool) -> None:
        """Raises: Changed, OSError: `undo` is to be called, unless `alone`."""
        if self._old is not None and alone:
            self._old.check(self._folder, self._name)
        elif self._old is not None:
            self._set_aside(self._old)
        if self._temporary is None:
            return
        if self._is_linked or (self._old is not None and alone):
            os.rename(self._temporary, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        else:
            try:
                rename_new(self._folder, self._temporary, self._name)
            except FileExistsError:
                raise Changed from None
        self._is_placed = True

    def undo(self) -> str:
        """Restore the file; return a sentence if that fails."""
        try:
            self._take_back()
        except (OSError, Changed):
            folder, slash, _ = self.change.path.rpartition("/")
            kept = f"; its old content is in '{folder}{slash}{self._backup}'" if self._backup else ""
            return f"'{self.change.path}' could not be restored{kept}."
        return ""

    def remove_backup(self) -> None:
        """Remove the backup. Errors are ignored, because all files are in place."""
        with suppress(OSError):
            if self._backup:
                os.unlink(self._backup, dir_fd=self._folder)
            sync(self._folder)

    def _set_aside(self, old: Original) -> None:
        """Give the old file its backup name; remove its own name if the file is to be removed."""
        old.check(self._folder, self._name)
        # It may be the only copy of the old content, so only the process that made it removes it.
        backup = f"{_PREFIX}{secrets.token_hex(16)}.old"
        if self._temporary is not None:
            with suppress(OSError):  # not every file system has hard links
                _link(self._folder, self._name, backup)
                self._is_linked = True
        if not self._is_linked:
            rename_new(self._folder, self._name, backup)
        self._backup = backup
        old.check(self._folder, backup)

    def _take_back(self) -> None:
        if self._is_placed and self._backup:
            self._check_own()
            os.rename(self._backup, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        elif self._is_placed:
            self._check_own()
            os.unlink(self._name, dir_fd=self._folder)
        elif self._is_linked and self._backup:
            os.unlink(self._backup, dir_fd=self._folder)
        elif self._backup:
            rename_new(self._folder, self._backup, self._name)

    def _check_own(self) -> None:
        """Raises: Changed: if another process's file has the name by now."""
        now = os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
        if file_id(now) != self.new_id:
            raise Changed


def _link(folder: int, name: str, other: str) -> None:
    os.link(name, other, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)


def _commit(ready: Sequence[_Prepared], *, alone: bool) -> None:
    for count, one in enumerate(ready, 1):
        try:
            with translate(one.change.path):
                one.commit(alone=alone)
        except BaseException as error:
            left = [text for done in reversed(ready[:count]) if not alone and (text := done.undo())]
            if left:
                why = f"{error} " if isinstance(error, ToolError) else ""
                text = f"{why}Not all earlier changes could be undone: {' '.join(left)}"
                raise _NotUndone(text) from None
            raise
    for one in ready:
        one.remove_backup()


@contextmanager
def _prepare(planned: PlannedChange) -> Generator[_Prepared]:
    change, target, old = planned.change, planned.target, planned.old
    parent, _, name = target.path.relative.rpartition("/")
    with translate(change.path), ExitStack() as stack:
        folder = stack.enter_context(folder_to_write(target.resolver, target.path.root.fd, parent or "."))
        if old is not None:
            old.check(folder, name)
            _refuse_read_only(change.path, old, folder, name)
        if (content := change.content) is None:
            yield _Prepared(planned, folder, name, None)
            return
        executable, recording = change.executable, target.recording
        new = temp_file(folder, content, planned.like, executable=executable, recording=recording)
        yield _Prepared(planned, folder, name, stack.enter_context(new))


def _refuse_read_only(path: str, old: Original, folder: int, name: str) -> None:
    """Refuse to replace a read-only file, which a rename could do, because its owner protected it."""
    own = os.access in os.supports_effective_ids
    if not old.status.st_mode & 0o222 or not os.access(name, os.W_OK, dir_fd=folder, effective_ids=own):
        raise Denied(f"'{path}' is read-only. Ask the user to make it writable, or write another file.")


@contextmanager
def temp_file(
    folder: int,
    content: bytes,
    like: Original | None,
    *,
    executable: bool | None = None,
    recording: RunningServer | None = None,
) -> Generator[str]:
    """A new, synced file with `content` under a temporary name in the open `folder`; the body renames it.

    Mode bits, and as far as permitted owner and extended attributes, are those of `like`, or of any new file.
    It is removed when the body fails. If this process is killed meanwhile, it stays, and its record too.
    """
    temporary = f"{_PREFIX}{secrets.token_hex(16)}{_SUFFIX}"
    with recording.temporary(folder, temporary) if recording is not None else nullcontext():
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(temporary, flags, 0o666 if like is None else 0o600, dir_fd=folder)
        try:
            try:
                _fill(fd, content, like, executable)
            finally:
                os.close(fd)
            yield temporary
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise


def _fill(fd: int, content: bytes, like: Original | None, executable: bool | None) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]
    if like is not None:
        _keep_metadata(fd, like)
    if executable is not None:
        # For everyone who may read it, or for nobody.
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        os.fchmod(fd, mode | (mode & 0o444) >> 2 if executable else mode & ~0o111)
    sync(fd)


def _keep_metadata(fd: int, old: Original) -> None:
    with suppress(OSError):
        os.fchown(fd, old.status.st_uid, old.status.st_gid)
    os.fchmod(fd, stat.S_IMODE(old.status.st_mode) & _PERMISSION_BITS)
    if sys.platform == "darwin":
        with suppress(OSError):
            copy_attributes(old.fd, fd)
        return
    with suppress(OSError):
        for name in set(os.listxattr(old.fd)) - _BOUND_TO_CONTENT:
            with suppress(OSError):
                os.setxattr(fd, name, os.getxattr(old.fd, name))


@contextmanager
def folder_to_write(resolver: Walk, root: int, relative: str) -> Generator[int]:
    """The folder at `relative` below `root`, open, and made with its parents where missing.

    New folders are removed when the body fails.

    Raises:
        Changed: a part of `relative` is a link, so that the folder lies elsewhere.
    """
    parts = [] if relative == "." else relative.split("/")
    with ExitStack() as closing:
        found, missing = _deepest(resolver, root, parts)
        closing.callback(os.close, found.fd)
        folder = os.open(".", FOLDER, dir_fd=found.fd)
        closing.callback(os.close, folder)
        made: list[tuple[int, str]] = []
        try:
            for name in missing:
                folder = _made(folder, name, made)
                closing.callback(os.close, folder)
            yield folder
        except BaseException:
            for parent, name in reversed(made):
                with suppress(OSError):
                    os.rmdir(name, dir_fd=parent)
            raise
        for parent, _ in made:
            with suppress(OSError):  # the content is in place; an error now would say that it is not
                sync(parent)


def _deepest(resolver: Walk, root: int, parts: Sequence[str]) -> tuple[ResolvedPath, Sequence[str]]:
    """The deepest folder that exists, and the names of those still missing in it."""
    for count in range(len(parts), 0, -1):
        relative = "/".join(parts[:count])
        try:
            found = resolver.resolve(root, relative)
        except FileNotFoundError:
            continue
        except Escape:
            raise Changed from None
        if found.relative == relative:
            return found, parts[count:]
        os.close(found.fd)
        raise Changed
    return resolver.resolve(root, "."), parts


def _made(folder: int, name: str, made: list[tuple[int, str]]) -> int:
    try:
        os.mkdir(name, dir_fd=folder)
        made.append((folder, name))
    except FileExistsError:
        pass  # by somebody else, meanwhile; a link is refused below
    try:
        return os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except NotADirectoryError:
        raise Changed from None
