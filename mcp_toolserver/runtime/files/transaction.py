"""Changing several files so that all of them change or none.

Whatever can fail is done first, under temporary names: folders are made, contents written and synced. Then
each file is renamed into place while its old content keeps a second name beside it, and when one fails, those
before it get their old content back. A machine that stops in the midst leaves these second names, `*.old`.
"""

import os
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import Conflict, ToolError
from mcp_toolserver.runtime.atomic import Changed, Old, backup_name, folder_to_write, identity, staged
from mcp_toolserver.runtime.libc import rename_new
from mcp_toolserver.runtime.place import Place, changed_meanwhile, refuse_read_only
from mcp_toolserver.runtime.refusals import explained


@dataclass(frozen=True, kw_only=True)
class Step:
    """One file that is to change."""

    path: CanonicalPath
    place: Place
    old: Old | None
    """The file as it was read; None when there was none."""
    content: bytes | None
    """None: it goes away."""
    like: Old | None
    """Whose metadata the new content gets."""
    executable: bool | None


def carry_out(steps: Sequence[Step]) -> None:
    """Take all the steps, or none.

    Raises:
        ToolError: one could not be taken. The text says which, and what could not be taken back if so.
    """
    with ExitStack() as stack:
        try:
            ready = [stack.enter_context(_prepared(step)) for step in steps]
        except ToolError as error:
            raise type(error)(f"{error} No file was changed.") from None
        _commit(ready)


class _Ready:
    """A step with its new content under a temporary name, in an open folder."""

    def __init__(self, step: Step, folder: int, temporary: str | None) -> None:
        self.step = step
        self._folder = folder
        self._temporary = temporary
        self._new = os.stat(temporary, dir_fd=folder, follow_symlinks=False) if temporary else None
        self._backup = ""
        self._is_linked = False
        self._is_placed = False

    def commit(self) -> None:
        """Raises: Changed, OSError: `undo` is to be called."""
        if self.step.old is not None:
            self._set_aside(self.step.old)
        if self._temporary is None:
            return
        if self._is_linked:
            os.rename(self._temporary, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        else:
            self._put_new(self._temporary)
        self._is_placed = True

    def undo(self) -> str:
        """What was done is taken back; or a sentence on what could not be."""
        try:
            self._take_back()
        except (OSError, Changed):
            kept = f"; its old content is in '{self._beside()}'" if self._backup else ""
            return f"'{self.step.path}' could not be restored{kept}."
        return ""

    def settle(self) -> None:
        """Everything is in place; an error now would say that it is not."""
        with suppress(OSError):
            if self._backup:
                os.unlink(self._backup, dir_fd=self._folder)
            os.fsync(self._folder)

    @property
    def _name(self) -> str:
        return self.step.place.name

    def _set_aside(self, old: Old) -> None:
        """Give the old file its second name, and when it is to go away no other."""
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
        """Raises: Changed: somebody else's file has the name by now."""
        now = os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
        if self._new is None or identity(now) != identity(self._new):
            raise Changed

    def _beside(self) -> str:
        parent, slash, _ = self.step.path.rpartition("/")
        return f"{parent}{slash}{self._backup}"


def _link(folder: int, name: str, other: str) -> None:
    os.link(name, other, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)


def _commit(ready: Sequence[_Ready]) -> None:
    for count, one in enumerate(ready, 1):
        try:
            with _told(one.step.path):
                one.commit()
        except BaseException as error:
            left = [text for done in reversed(ready[:count]) if (text := done.undo())]
            if left:
                why = f"{error} " if isinstance(error, ToolError) else ""
                raise Conflict(
                    f"{why}What was done before could not all be taken back: {' '.join(left)}"
                ) from None
            if isinstance(error, ToolError):
                raise type(error)(f"{error} No file was changed.") from None
            raise
    for one in ready:
        one.settle()


@contextmanager
def _prepared(step: Step) -> Generator[_Ready]:
    place = step.place
    with _told(step.path), ExitStack() as stack:
        folder = stack.enter_context(folder_to_write(place.engine, place.root.fd, place.folder))
        if step.old is not None:
            step.old.check(folder, place.name)
            refuse_read_only(step.path, step.old, folder, place.name)
        temporary = None
        if step.content is not None:
            new = staged(folder, step.content, step.like, executable=step.executable)
            temporary = stack.enter_context(new)
        yield _Ready(step, folder, temporary)


@contextmanager
def _told(path: CanonicalPath) -> Generator[None]:
    try:
        with explained(path):
            yield
    except Changed:
        raise changed_meanwhile(path) from None
