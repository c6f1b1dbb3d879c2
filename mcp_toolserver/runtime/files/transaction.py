"""Changes several files in one transaction: all of them or none.

What can fail happens first, under temporary names: folders are made, contents written and synced. Then
each file is renamed into place while its old content keeps a backup name in the same folder; when one rename
fails, the files before it get their old content back. A crash in between leaves the backups, `*.old`.
"""

import os
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import Conflict, ToolError
from mcp_toolserver.runtime.files.atomic_write import (
    Changed,
    FileId,
    Original,
    backup_name,
    file_id,
    folder_to_write,
    temp_file,
)
from mcp_toolserver.runtime.files.libc import rename_new
from mcp_toolserver.runtime.files.os_errors import translate
from mcp_toolserver.runtime.files.write_target import WriteTarget, changed_meanwhile, refuse_read_only
from mcp_toolserver.stores.durable import sync


@dataclass(frozen=True, kw_only=True)
class PlannedChange:
    """One file to change."""

    path: CanonicalPath
    target: WriteTarget
    old: Original | None
    """The file as it was read; None when there was none."""
    content: bytes | None
    """None to remove the file."""
    like: Original | None
    """The file whose metadata the new content gets."""
    executable: bool | None


def apply_changes(changes: Sequence[PlannedChange]) -> list[FileId]:
    """Make all changes, or none. Returns what identifies the new files.

    Raises:
        ToolError: if one fails. The text says which, and what could not be restored.
    """
    with ExitStack() as stack:
        try:
            ready = [stack.enter_context(_prepare(change)) for change in changes]
        except ToolError as error:
            raise type(error)(f"{error} No file was changed.") from None
        _commit(ready)
        return [one.new_id for one in ready if one.new_id is not None]


class _Prepared:
    """A change with its new content under a temporary name, in an open folder."""

    def __init__(self, change: PlannedChange, folder: int, temporary: str | None) -> None:
        self.change = change
        self._folder = folder
        self._temporary = temporary
        self._new = os.stat(temporary, dir_fd=folder, follow_symlinks=False) if temporary else None
        self._backup = ""
        self._is_linked = False
        self._is_placed = False

    @property
    def new_id(self) -> FileId | None:
        """Identifies the new file; None if the file is to be removed."""
        return None if self._new is None else file_id(self._new)

    def commit(self) -> None:
        """Raises: Changed, OSError: `undo` is to be called."""
        if self.change.old is not None:
            self._set_aside(self.change.old)
        if self._temporary is None:
            return
        if self._is_linked:
            os.rename(self._temporary, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        else:
            self._put_new(self._temporary)
        self._is_placed = True

    def undo(self) -> str:
        """Restore the file; return a sentence if that fails."""
        try:
            self._take_back()
        except (OSError, Changed):
            kept = f"; its old content is in '{self._backup_path()}'" if self._backup else ""
            return f"'{self.change.path}' could not be restored{kept}."
        return ""

    def remove_backup(self) -> None:
        """Remove the backup. Errors are ignored, because all files are in place."""
        with suppress(OSError):
            if self._backup:
                os.unlink(self._backup, dir_fd=self._folder)
            sync(self._folder)

    @property
    def _name(self) -> str:
        return self.change.target.name

    def _set_aside(self, old: Original) -> None:
        """Give the old file its backup name; remove its own name if the file is to be removed."""
        old.check(self._folder, self._name)
        backup = backup_name()
        if self._temporary is not None:
            with suppress(OSError):  # not every file system has hard links
                _link(self._folder, self._name, backup)
                self._is_linked = True
        if not self._is_linked:
            rename_new(self._folder, self._name, backup)
        self._backup = backup
        old.check(self._folder, backup)

    def _put_new(self, temporary: str) -> None:
        try:
            rename_new(self._folder, temporary, self._name)
        except FileExistsError:
            raise Changed from None

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
        if self._new is None or file_id(now) != file_id(self._new):
            raise Changed

    def _backup_path(self) -> str:
        parent, slash, _ = self.change.path.rpartition("/")
        return f"{parent}{slash}{self._backup}"


def _link(folder: int, name: str, other: str) -> None:
    os.link(name, other, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)


def _commit(ready: Sequence[_Prepared]) -> None:
    for count, one in enumerate(ready, 1):
        try:
            with _translated_errors(one.change.path):
                one.commit()
        except BaseException as error:
            left = [text for done in reversed(ready[:count]) if (text := done.undo())]
            if left:
                why = f"{error} " if isinstance(error, ToolError) else ""
                raise Conflict(f"{why}Not all earlier changes could be undone: {' '.join(left)}") from None
            if isinstance(error, ToolError):
                raise type(error)(f"{error} No file was changed.") from None
            raise
    for one in ready:
        one.remove_backup()


@contextmanager
def _prepare(change: PlannedChange) -> Generator[_Prepared]:
    target = change.target
    with _translated_errors(change.path), ExitStack() as stack:
        folder = stack.enter_context(folder_to_write(target.resolver, target.root.fd, target.folder))
        if change.old is not None:
            change.old.check(folder, target.name)
            refuse_read_only(change.path, change.old, folder, target.name)
        temporary = None
        if change.content is not None:
            new = temp_file(
                folder, change.content, change.like, executable=change.executable, recording=target.recording
            )
            temporary = stack.enter_context(new)
        yield _Prepared(change, folder, temporary)


@contextmanager
def _translated_errors(path: CanonicalPath) -> Generator[None]:
    try:
        with translate(path):
            yield
    except Changed:
        raise changed_meanwhile(path) from None
