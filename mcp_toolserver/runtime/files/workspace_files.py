"""Reads and changes the files of a workspace."""

import difflib
import hashlib
import os
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import BinaryIO, TypeVar

from anyio import to_thread

from mcp_toolserver.capabilities.files import (
    CanonicalPath,
    Contents,
    FileChange,
    FolderContent,
    FolderQuery,
    Previous,
    Written,
)
from mcp_toolserver.errors import Conflict, InvalidInput, NotFound, ToolError
from mcp_toolserver.runtime.files.listing import folders
from mcp_toolserver.runtime.files.os_errors import Changed, translate
from mcp_toolserver.runtime.files.path_resolver import inside
from mcp_toolserver.runtime.files.transaction import (
    FileId,
    Original,
    PlannedChange,
    WriteTarget,
    apply_changes,
    file_id,
    folder_to_write,
)
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.search.ignore_rules import NEVER_WANTED
from mcp_toolserver.stores.file_history import FileHistory
from mcp_toolserver.text.redact_secrets import is_secret_file

T = TypeVar("T")

SIZE_LIMIT = 10 * 1024 * 1024
"""Bytes of a file that can be changed."""

_SIBLINGS = 2_000
"""Names of a folder that are compared with a missing one."""

_SUGGESTIONS = 3

_LOOKED_AT = 20_000
"""Names in all folders that are compared with a missing one."""

_UNSEARCHED = frozenset({*NEVER_WANTED, "node_modules", ".venv", "__pycache__"})
"""Folders in which nobody looks for a file by name."""

_TOGETHER = 6
"""The number of files of the maximum size that one call can change."""


@dataclass(frozen=True)
class ConfinedFiles:
    """Files inside the roots. Every path is opened below a root by the kernel; a link cannot lead out.

    All methods raise `NotFound`, `Denied` (outside the roots, hidden by a rule, or protected), `InvalidInput`
    (not a regular file) and never hang on a FIFO or a device.
    """

    workspace: Workspace
    may_write: bool
    """Whether files may be changed; otherwise they can only be read."""
    history: FileHistory | None = None
    """That of the session; without it, nothing is kept for undo."""
    size_limit: int = SIZE_LIMIT

    async def read(self, path: CanonicalPath, reader: Callable[[BinaryIO, int], T]) -> T:
        """Give the open regular file and its size in bytes to `reader`, in a worker thread."""
        found, file = await self.workspace.read(path, partial(self._read, path, reader))
        if self.history is not None:
            self.history.saw(file)
        return found

    async def check_writable(self, path: CanonicalPath) -> None:
        """Find out, without changing anything, whether `write` may put a file at `path`.

        For work that is wasted when it may not, such as a download. The write checks again.

        Raises:
            Denied: the path is protected, hidden, or in a folder that can only be read.
            InvalidInput: a folder or a special file is there.
        """
        self._check_declared()

        def check() -> None:
            self.workspace.write_target(path)
            with translate(path), self._original(path, creates=True):
                pass

        await to_thread.run_sync(check)

    async def write(
        self,
        path: CanonicalPath,
        content: bytes,
        *,
        expected_sha256: str | None = None,
        overwrite: bool = False,
        append: bool = False,
    ) -> Written:
        """Create, replace or `append` to a file atomically, with its parents; mode bits are kept.

        Raises:
            Conflict: `expected_sha256` is given and the file is gone or has other content. Without it and
                `overwrite`: the session has neither read nor written the file as it is, and more than half
                of it would go, or it cannot be kept for undo.
        """
        may_lose = overwrite or expected_sha256 is not None
        return await self._replace(
            path, lambda old: old * append + content, expected_sha256, may_lose=may_lose
        )

    async def restore(
        self, path: CanonicalPath, handle: str, *, expected_sha256: str | None = None
    ) -> Written:
        """Put back the content of `path` that is kept under `handle`, a `Previous.handle` of the session.

        Raises:
            NotFound: nothing is kept under `handle`, or the content of another file.
            Conflict: as for `write` with `expected_sha256`.
        """
        self._check_declared()
        target = self.workspace.write_target(path)
        if self.history is None:
            raise NotFound("This server keeps nothing for undo.")
        content = await to_thread.run_sync(self.history.content, handle, target.absolute)
        return await self._replace(path, lambda _: content, expected_sha256)

    async def update(
        self, path: CanonicalPath, change: Callable[[bytes], bytes], *, expected_sha256: str | None = None
    ) -> Written:
        """Replace a file's content by `change(content)`, atomically and serially with other changes of it.

        Raises:
            Conflict: as for `write`, or somebody else changed the file meanwhile.
        """
        return await self._replace(path, change, expected_sha256, creates=False)

    async def update_all(
        self, paths: Sequence[CanonicalPath], change: Callable[[Contents], Sequence[FileChange]]
    ) -> Mapping[CanonicalPath, Written]:
        """Create, replace and delete files as `change` returns for their contents: all of them or none.

        Every changed file is one of `paths`. Each replaces its target in one step; if one fails, the earlier
        ones are undone. Only a machine that stops midway leaves some changed, with their old content in
        backup files in the same folder.

        Raises:
            Conflict: somebody else changed a file meanwhile, or what was done could not be taken back; the
                text says which.
        """
        return await self._in_turn(paths, _Change(change))

    async def make_folder(self, path: CanonicalPath) -> bool:
        """Make a folder, with its parents. False when it was there.

        Raises:
            Conflict: something else has the name.
        """
        self._check_declared()
        return await to_thread.run_sync(self._make_folder, path)

    async def folders(self, query: FolderQuery) -> Mapping[str, FolderContent]:
        """What a folder and those below it hold, by their path below it; `.` is the folder itself.

        What a rule hides is left out and not counted.
        """
        # A caller that has given up does not wait for the thread, which ends by itself.
        return await to_thread.run_sync(folders, self.workspace, query, abandon_on_cancel=True)

    def _read(self, path: CanonicalPath, reader: Callable[[BinaryIO, int], T]) -> tuple[T, FileId]:
        try:
            fd = self.workspace.open_file(path)
        except NotFound as error:
            raise self._missing(path, error) from None
        with translate(path), os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            return reader(file, status.st_size), file_id(status)

    def _check_declared(self) -> None:
        if not self.may_write:
            raise RuntimeError("the tool changes files but did not declare fs_write")

    def _make_folder(self, path: CanonicalPath) -> bool:
        kind = self.workspace.kind(path)
        if kind == "folder":
            return False
        if kind != "missing":
            raise Conflict(f"'{path}' exists and is not a folder. Choose another name.")
        target = self.workspace.write_target(path)
        with translate(path):
            try:
                with folder_to_write(target.resolver, target.path.root.fd, target.path.relative):
                    return True
            except Changed:
                raise Conflict(f"'{path}' was made or moved by somebody meanwhile. Try again.") from None

    async def _replace(
        self,
        path: CanonicalPath,
        change: Callable[[bytes], bytes],
        expected_sha256: str | None,
        *,
        creates: bool = True,
        may_lose: bool = True,
    ) -> Written:
        """Change one file, in one step, unless its content stays the same."""

        def replaced(contents: Contents) -> Sequence[FileChange]:
            before = contents[path]
            _check_expected(path, expected_sha256, before)
            return (FileChange(path=path, content=change(before or b"")),)

        alone = _Change(replaced, alone=True, creates=creates, may_lose=may_lose)
        return (await self._in_turn((path,), alone))[path]

    async def _in_turn(
        self, paths: Sequence[CanonicalPath], change: "_Change"
    ) -> Mapping[CanonicalPath, Written]:
        """Make a change while nobody else changes the files."""
        self._check_declared()
        targets = {path: self.workspace.write_target(path) for path in paths}
        async with AsyncExitStack() as stack:
            # In one order, so that two such calls cannot wait for each other.
            for name in sorted({target.lock_name for target in targets.values()}):
                await stack.enter_async_context(self.workspace.locks.hold(name))
            return await to_thread.run_sync(self._change, targets, change)

    def _change(
        self, targets: Mapping[CanonicalPath, WriteTarget], change: "_Change"
    ) -> Mapping[CanonicalPath, Written]:
        with ExitStack() as stack:
            olds = {
                path: stack.enter_context(self._original(path, creates=change.creates)) for path in targets
            }
            if not change.alone:
                self._check_sum(olds)
            before = {path: None if old is None else self._content(old, path) for path, old in olds.items()}
            changes = change.decide(before)
            for one in changes:
                self._check_size(len(one.content or b""), one.path)
            kept: dict[CanonicalPath, Previous | None] = {}
            for one in changes:
                old = olds[one.path]
                keeping = self._kept(one, targets[one.path], before[one.path], old, change.may_lose)
                kept[one.path] = stack.enter_context(keeping)
            steps = [
                PlannedChange(one, targets[one.path], olds[one.path], olds[one.like or one.path])
                for one in changes
            ]
            is_same = change.alone and changes[0].content == before[changes[0].path]
            for new in () if is_same else apply_changes(steps, alone=change.alone):
                if self.history is not None:
                    self.history.wrote(new)
            if self.history is not None and not is_same:
                changed = (targets[one.path] for one in changes if one.content != before[one.path])
                self.history.add_changed(*(one.absolute for one in changed if not one.is_temporary))
            return {
                one.path: _written(one, before[one.path], olds[one.path], kept[one.path]) for one in changes
            }

    @contextmanager
    def _kept(
        self,
        change: FileChange,
        target: WriteTarget,
        before: bytes | None,
        old: Original | None,
        may_lose: bool,
    ) -> Generator[Previous | None]:
        """Keep the content of the file that the body replaces; it is dropped again if the body fails."""
        history, before, after = self.history, before or b"", change.content or b""
        if history is None or old is None or before == after or target.is_temporary:
            yield None
            return
        is_checked = not may_lose and not history.knows(old.id)
        if is_checked and drops_most(before, after):
            raise Conflict(
                f"'{change.path}' exists, its {len(before)} bytes were not read in this session as they are "
                "now, and the new content drops more than half of them. Nothing was changed. Read the file "
                "first; or send overwrite: true, or its expected_sha256, if all of it is to be replaced."
            )
        previous = _keep_previous(history, target.absolute, old.id, before)
        if is_checked and previous is not None and previous.why:
            raise Conflict(
                f"'{change.path}' exists, was not read in this session as it is now, and its content cannot "
                f"be kept for undo: {previous.why}. Nothing was changed. Read the file first; or send "
                "overwrite: true, or its expected_sha256, to replace it for good."
            )
        try:
            yield previous
        except BaseException:
            if previous is not None:
                history.drop(previous.handle)
            raise

    @contextmanager
    def _original(self, path: CanonicalPath, *, creates: bool) -> Generator[Original | None]:
        """The current file; None if it is missing and may be created."""
        try:
            fd = self.workspace.open_file(path)
        except NotFound as error:
            if not creates:
                raise self._missing(path, error) from None
            fd = None
        if fd is None:
            yield None
            return
        try:
            yield Original(fd=fd, status=os.fstat(fd))
        finally:
            os.close(fd)

    def _content(self, old: Original, path: CanonicalPath) -> bytes:
        self._check_size(old.status.st_size, path)
        with translate(path), os.fdopen(os.dup(old.fd), "rb") as file:
            content = file.read(old.status.st_size + 1)
            if len(content) != old.status.st_size:
                raise Changed
        return content

    def _check_size(self, size: int, path: CanonicalPath) -> None:
        if size > self.size_limit:
            raise InvalidInput(
                f"'{path}' has or would have {size} bytes. Only files up to {self.size_limit} bytes can be "
                "changed; split the content over several files."
            )

    def _check_sum(self, olds: Mapping[CanonicalPath, Original | None]) -> None:
        total = sum(old.status.st_size for old in olds.values() if old)
        if total > _TOGETHER * self.size_limit:
            raise InvalidInput(
                f"These files have {total} bytes together. At most {_TOGETHER * self.size_limit} can be "
                "changed at once; change fewer files in one call."
            )

    def _missing(self, path: CanonicalPath, error: ToolError) -> NotFound:
        """The error, with similar names in the same folder, or else the same name in others."""
        similar = self._similar(path) or self._elsewhere(path)
        return NotFound(f"{error} Did you mean {', '.join(similar)}?" if similar else str(error))

    def _similar(self, path: CanonicalPath) -> list[str]:
        parent, slash, wanted = path.rpartition("/")
        names = [name for name, _ in self._names(CanonicalPath(parent or slash or "."), _SIBLINGS)]
        close = difflib.get_close_matches(wanted, names)
        return self._shown([CanonicalPath(f"{parent}{slash}{name}") for name in close])

    def _elsewhere(self, path: CanonicalPath) -> list[str]:
        """Files with the same name anywhere in the roots, as far as a short search finds them."""
        wanted, looked_at = path.rpartition("/")[2].casefold(), 0
        found: list[CanonicalPath] = []
        folders = deque(map(CanonicalPath, self.workspace.roots))
        while folders and looked_at < _LOOKED_AT and len(found) < _SUGGESTIONS:
            folder = folders.popleft()
            for name, is_folder in self._names(folder, _LOOKED_AT - looked_at):
                looked_at += 1
                below = inside(folder, name)
                if name.casefold() == wanted:
                    with suppress(ToolError):
                        found.append(self.workspace.canonical(below))
                elif is_folder and name not in _UNSEARCHED:
                    folders.append(below)
        return self._shown(found)

    def _shown(self, paths: Sequence[CanonicalPath]) -> list[str]:
        return [f"'{one}'" for one in paths if one.isprintable() and not self.workspace.is_hidden(one)]

    def _names(self, folder: CanonicalPath, most: int) -> Iterator[tuple[str, bool]]:
        """The first names in a folder, and whether each is a folder; none where it cannot be listed."""
        with suppress(ToolError, OSError):
            fd = self.workspace.open_dir(folder)
            try:
                with os.scandir(fd) as entries:
                    for entry in islice(entries, most):
                        yield entry.name, entry.is_dir(follow_symlinks=False)
            finally:
                os.close(fd)


@dataclass(frozen=True)
class _Change:
    """What is to be done with the files that one call names."""

    decide: Callable[[Contents], Sequence[FileChange]]
    alone: bool = False
    """Whether it replaces or creates one file."""
    creates: bool = True
    """Whether files may be missing."""
    may_lose: bool = True
    """Whether it may drop content that the session does not know."""


def _check_expected(path: CanonicalPath, wanted: str | None, before: bytes | None) -> None:
    if wanted is None:
        return
    if before is None:
        raise Conflict(f"'{path}' does not exist (any more). Leave out the expected sha256 to create it.")
    if hashlib.sha256(before).hexdigest() != wanted.lower():
        raise Conflict(
            f"'{path}' has other content than the expected sha256 says. Read it again, then retry."
        )


def _written(
    change: FileChange, before: bytes | None, old: Original | None, previous: Previous | None
) -> Written:
    after = change.content or b""
    return Written(
        created=old is None,
        before=before or b"",
        after=after,
        sha256=hashlib.sha256(after).hexdigest(),
        links=old.status.st_nlink if old else 0,
        previous=previous,
    )


def _keep_previous(history: FileHistory, path: str, file: FileId, content: bytes) -> Previous | None:
    """Keep `content`, the file at the absolute `path`, if there is any; say why if that is not possible."""
    if not content:
        return None
    if is_secret_file(path.rpartition("/")[2], content):
        return Previous(why="it looks like credentials, which the server does not copy")
    try:
        return history.keep(path, file, content)
    except OSError as error:
        return Previous(why=error.strerror or str(error))


def drops_most(before: bytes, after: bytes) -> bool:
    """Whether `after` lacks more than half of `before`, measured in bytes of whole lines.

    The order of lines, their line endings and the whitespace around them do not count.
    """
    half = (len(before) + 1) // 2
    if after.startswith(before[:half]) or after.endswith(before[-half:]):
        # The usual case, found without splitting a large file.
        return False
    old, new = (Counter(map(bytes.strip, content.split(b"\n"))) for content in (before, after))
    return 2 * sum(map(len, (old & new).elements())) < sum(map(len, old.elements()))
