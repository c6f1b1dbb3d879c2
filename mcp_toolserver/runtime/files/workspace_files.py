"""Reads and changes the files of a workspace."""

import difflib
import hashlib
import os
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import BinaryIO, Literal, Protocol, TypeVar

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
from mcp_toolserver.runtime.files import atomic_write
from mcp_toolserver.runtime.files.atomic_write import Changed, FileId, Original, file_id, folder_to_write
from mcp_toolserver.runtime.files.file_history import FileHistory, check_kept, check_loss, keep_previous
from mcp_toolserver.runtime.files.listing import folders
from mcp_toolserver.runtime.files.os_errors import translate
from mcp_toolserver.runtime.files.path_locks import PathLocks
from mcp_toolserver.runtime.files.transaction import PlannedChange, apply_changes
from mcp_toolserver.runtime.files.write_target import WriteTarget, changed_meanwhile, refuse_read_only
from mcp_toolserver.runtime.search.display_path import inside
from mcp_toolserver.runtime.search.ignore_rules import NEVER_WANTED

T = TypeVar("T")

_SIBLINGS = 2_000
"""Names of a folder that are compared with a missing one."""

_SUGGESTIONS = 3

_LOOKED_AT = 20_000
"""Names in all folders that are compared with a missing one."""

_UNSEARCHED = frozenset({*NEVER_WANTED, "node_modules", ".venv", "__pycache__"})
"""Folders in which nobody looks for a file by name."""

_TOGETHER = 6
"""The number of files of the maximum size that one call can change."""


class WorkspacePaths(Protocol):
    """The part of the workspace that is needed here."""

    @property
    def roots(self) -> tuple[str, ...]: ...
    def canonical(self, path: str) -> CanonicalPath: ...
    async def read(self, path: CanonicalPath, work: Callable[[], T]) -> T: ...
    def open_file(self, path: CanonicalPath) -> int: ...
    def open_dir(self, path: CanonicalPath) -> int: ...
    def write_target(self, path: CanonicalPath) -> WriteTarget: ...
    def is_hidden(self, path: CanonicalPath) -> bool: ...
    def kind(self, path: CanonicalPath) -> Literal["file", "folder", "other", "missing"]: ...


@dataclass(frozen=True, kw_only=True)
class _Request:
    """One change of a file."""

    path: CanonicalPath
    target: WriteTarget
    change: Callable[[bytes], bytes] = bytes
    expected_sha256: str | None = None
    creates: bool = True
    may_lose: bool = True
    """Whether it may drop content that the session does not know."""


class ConfinedFiles:
    """The files of a workspace, as `capabilities.Files`."""

    def __init__(
        self,
        workspace: WorkspacePaths,
        *,
        locks: PathLocks,
        size_limit: int,
        write: bool,
        history: FileHistory | None,
    ) -> None:
        self._workspace = workspace
        self._history = history
        self._locks = locks
        self._size_limit = size_limit
        self._write = write

    async def read(self, path: CanonicalPath, reader: Callable[[BinaryIO, int], T]) -> T:
        found, status = await self._workspace.read(path, partial(self._read_file, path, reader))
        if self._history is not None:
            self._history.saw(file_id(status))
        return found

    async def check_writable(self, path: CanonicalPath) -> None:
        self._check_declared()
        await to_thread.run_sync(self._check_writable, path)

    async def write(
        self,
        path: CanonicalPath,
        content: bytes,
        *,
        expected_sha256: str | None = None,
        overwrite: bool = False,
    ) -> Written:
        return await self._changed(
            self._request(
                path,
                lambda _: content,
                expected_sha256,
                creates=True,
                may_lose=overwrite or expected_sha256 is not None,
            )
        )

    async def restore(
        self, path: CanonicalPath, handle: str, *, expected_sha256: str | None = None
    ) -> Written:
        request = self._request(path, bytes, expected_sha256, creates=True)
        if self._history is None:
            raise NotFound("This server keeps nothing for undo.")
        content = await to_thread.run_sync(self._history.content, handle, request.target.absolute)

        def change(_: bytes) -> bytes:
            return content

        return await self._changed(replace(request, change=change))

    async def update(
        self, path: CanonicalPath, change: Callable[[bytes], bytes], *, expected_sha256: str | None = None
    ) -> Written:
        return await self._changed(self._request(path, change, expected_sha256))

    async def update_all(
        self, paths: Sequence[CanonicalPath], change: Callable[[Contents], Sequence[FileChange]]
    ) -> Mapping[CanonicalPath, Written]:
        self._check_declared()
        targets = {path: self._workspace.write_target(path) for path in paths}
        async with AsyncExitStack() as stack:
            # In one order, so that two such calls cannot wait for each other.
            for name in sorted({target.lock_name for target in targets.values()}):
                await stack.enter_async_context(self._locks.hold(name))
            return await to_thread.run_sync(self._change_all, targets, change)

    async def make_folder(self, path: CanonicalPath) -> bool:
        self._check_declared()
        return await to_thread.run_sync(self._make_folder, path)

    async def folders(self, query: FolderQuery) -> Mapping[str, FolderContent]:
        # A caller that has given up does not wait for the thread, which ends by itself.
        return await to_thread.run_sync(folders, self._workspace, query, abandon_on_cancel=True)

    def _read_file(
        self, path: CanonicalPath, reader: Callable[[BinaryIO, int], T]
    ) -> tuple[T, os.stat_result]:
        try:
            fd = self._workspace.open_file(path)
        except NotFound as error:
            raise self._missing(path, error) from None
        with translate(path), os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            return reader(file, status.st_size), status

    def _check_declared(self) -> None:
        if not self._write:
            raise RuntimeError("the tool changes files but did not declare fs_write")

    def _request(
        self,
        path: CanonicalPath,
        change: Callable[[bytes], bytes],
        expected_sha256: str | None,
        *,
        creates: bool = False,
        may_lose: bool = True,
    ) -> _Request:
        self._check_declared()
        return _Request(
            path=path,
            target=self._workspace.write_target(path),
            change=change,
            expected_sha256=expected_sha256,
            creates=creates,
            may_lose=may_lose,
        )

    async def _changed(self, request: _Request) -> Written:
        async with self._locks.hold(request.target.lock_name):
            return await to_thread.run_sync(self._change, request)

    def _change(self, request: _Request) -> Written:
        with translate(request.path), self._original(request.path, creates=request.creates) as old:
            before = b"" if old is None else self._content(old, request.path)
            _check_expected(request, before, old)
            after = request.change(before)
            self._check_size(len(after), request.path)
            if old is not None and after == before:
                return _written(before, after, old)
            with self._kept(request, before, after, old) as previous:
                new = _put(request, after, old)
            if self._history is not None:
                self._history.wrote(new)
            return _written(before, after, old, previous)

    @contextmanager
    def _kept(
        self, request: _Request, before: bytes, after: bytes, old: Original | None
    ) -> Generator[Previous | None]:
        """Keep the content of the file that the body replaces; it is dropped again if the body fails.

        Raises:
            Conflict: the session does not know the content, and it would be lost.
        """
        history = self._history
        if history is None or old is None or before == after or request.target.is_temporary:
            yield None
            return
        is_checked = not request.may_lose and not history.knows(old.id)
        if is_checked:
            check_loss(request.path, before, after)
        previous = keep_previous(history, request.target.absolute, old.id, before)
        if is_checked:
            check_kept(request.path, previous)
        try:
            yield previous
        except BaseException:
            if previous is not None:
                history.drop(previous)
            raise

    def _change_all(
        self,
        targets: Mapping[CanonicalPath, WriteTarget],
        change: Callable[[Contents], Sequence[FileChange]],
    ) -> Mapping[CanonicalPath, Written]:
        with ExitStack() as stack:
            olds = {path: stack.enter_context(self._original(path, creates=True)) for path in targets}
            self._check_sum(olds)
            before = {path: None if old is None else self._read(old, path) for path, old in olds.items()}
            changes = change(before)
            for one in changes:
                self._check_size(len(one.content or b""), one.path)
            kept: dict[CanonicalPath, Previous | None] = {}
            for one in changes:
                old, content = olds[one.path], before[one.path] or b""
                request = _Request(path=one.path, target=targets[one.path])
                kept[one.path] = stack.enter_context(self._kept(request, content, one.content or b"", old))
            for new in apply_changes([_step(one, targets[one.path], olds) for one in changes]):
                if self._history is not None:
                    self._history.wrote(new)
            return {
                one.path: _written(
                    before[one.path] or b"", one.content or b"", olds[one.path], kept[one.path]
                )
                for one in changes
            }

    def _check_sum(self, olds: Mapping[CanonicalPath, Original | None]) -> None:
        total = sum(old.status.st_size for old in olds.values() if old)
        if total > _TOGETHER * self._size_limit:
            raise InvalidInput(
                f"These files have {total} bytes together. At most {_TOGETHER * self._size_limit} can be "
                "changed at once; change fewer files in one call."
            )

    def _read(self, old: Original, path: CanonicalPath) -> bytes:
        with translate(path):
            return self._content(old, path)

    def _check_writable(self, path: CanonicalPath) -> None:
        self._workspace.write_target(path)
        with translate(path), self._original(path, creates=True):
            pass

    def _make_folder(self, path: CanonicalPath) -> bool:
        kind = self._workspace.kind(path)
        if kind == "folder":
            return False
        if kind != "missing":
            raise Conflict(f"'{path}' exists and is not a folder. Choose another name.")
        target = self._workspace.write_target(path)
        try:
            with translate(path), folder_to_write(target.resolver, target.root.fd, target.relative):
                return True
        except Changed:
            raise Conflict(f"'{path}' was made or moved by somebody meanwhile. Try again.") from None

    @contextmanager
    def _original(self, path: CanonicalPath, *, creates: bool) -> Generator[Original | None]:
        """The current file; None if it is missing and may be created."""
        try:
            fd = self._workspace.open_file(path)
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
        with os.fdopen(os.dup(old.fd), "rb") as file:
            content = file.read(old.status.st_size + 1)
        if len(content) != old.status.st_size:
            raise changed_meanwhile(path)
        return content

    def _check_size(self, size: int, path: CanonicalPath) -> None:
        if size > self._size_limit:
            raise InvalidInput(
                f"'{path}' has or would have {size} bytes. Only files up to {self._size_limit} bytes can be "
                "changed; split the content over several files."
            )

    def _missing(self, path: CanonicalPath, error: ToolError) -> NotFound:
        """The error, with similar names in the same folder, or else the same name in others."""
        similar = self._similar(path) or self._elsewhere(path)
        return NotFound(f"{error} Did you mean {', '.join(similar)}?" if similar else str(error))

    def _similar(self, path: CanonicalPath) -> list[str]:
        parent, slash, wanted = path.rpartition("/")
        folder = CanonicalPath(parent or slash or ".")
        names: list[str] = []
        with suppress(ToolError, OSError):
            fd = self._workspace.open_dir(folder)
            try:
                with os.scandir(fd) as entries:
                    names = [entry.name for entry in islice(entries, _SIBLINGS)]
            finally:
                os.close(fd)
        paths = [CanonicalPath(f"{parent}{slash}{name}") for name in difflib.get_close_matches(wanted, names)]
        return [f"'{path}'" for path in paths if _is_sendable(path) and not self._workspace.is_hidden(path)]

    def _elsewhere(self, path: CanonicalPath) -> list[str]:
        """Files with the same name anywhere in the roots, as far as a short search finds them."""
        wanted, looked_at = path.rpartition("/")[2].casefold(), 0
        found: list[CanonicalPath] = []
        folders = deque(map(CanonicalPath, self._workspace.roots))
        while folders and looked_at < _LOOKED_AT and len(found) < _SUGGESTIONS:
            folder = folders.popleft()
            with suppress(ToolError, OSError):
                fd = self._workspace.open_dir(folder)
                try:
                    with os.scandir(fd) as entries:
                        for entry in islice(entries, _LOOKED_AT - looked_at):
                            looked_at += 1
                            below = inside(folder, entry.name)
                            if entry.name.casefold() == wanted:
                                found.append(self._workspace.canonical(below))
                            elif entry.name not in _UNSEARCHED and entry.is_dir(follow_symlinks=False):
                                folders.append(below)
                finally:
                    os.close(fd)
        return [f"'{one}'" for one in found if _is_sendable(one) and not self._workspace.is_hidden(one)]


def _is_sendable(path: str) -> bool:
    return path.isprintable()


def _check_expected(request: _Request, before: bytes, old: Original | None) -> None:
    wanted = request.expected_sha256
    if wanted is None:
        return
    if old is None:
        raise Conflict(
            f"'{request.path}' does not exist (any more). Leave out the expected sha256 to create it."
        )
    if hashlib.sha256(before).hexdigest() != wanted.lower():
        raise Conflict(
            f"'{request.path}' has other content than the expected sha256 says. Read it again, then retry."
        )


def _written(before: bytes, after: bytes, old: Original | None, previous: Previous | None = None) -> Written:
    return Written(
        created=old is None,
        before=before,
        after=after,
        sha256=hashlib.sha256(after).hexdigest(),
        links=old.status.st_nlink if old else 0,
        previous=previous,
    )


def _step(
    change: FileChange, target: WriteTarget, olds: Mapping[CanonicalPath, Original | None]
) -> PlannedChange:
    return PlannedChange(
        path=change.path,
        target=target,
        old=olds[change.path],
        content=change.content,
        like=olds[change.like or change.path],
        executable=change.executable,
    )


def _put(request: _Request, content: bytes, old: Original | None) -> FileId:
    target = request.target
    try:
        with folder_to_write(target.resolver, target.root.fd, target.folder) as folder:
            if old is not None:
                old.check(folder, target.name)
                refuse_read_only(request.path, old, folder, target.name)
            return atomic_write.replace(folder, target.name, content, old, target.recording)
    except Changed:
        raise changed_meanwhile(request.path) from None
