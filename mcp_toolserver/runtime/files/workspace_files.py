"""Reading and changing the files of a workspace."""

import difflib
import hashlib
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from typing import BinaryIO, Literal, Protocol, TypeVar

from anyio import to_thread

from mcp_toolserver.capabilities.files import (
    CanonicalPath,
    Contents,
    FileChange,
    FolderContent,
    FolderQuery,
    Written,
)
from mcp_toolserver.errors import Conflict, InvalidInput, NotFound, ToolError
from mcp_toolserver.runtime.atomic import Changed, Old, folder_to_write, replace
from mcp_toolserver.runtime.listing import folders
from mcp_toolserver.runtime.locks import PathLocks
from mcp_toolserver.runtime.place import Place, changed_meanwhile, refuse_read_only
from mcp_toolserver.runtime.refusals import explained
from mcp_toolserver.runtime.together import Step, carry_out

T = TypeVar("T")

_SIBLINGS = 2_000
"""Names of a folder that are compared with one that is not there."""

_SUGGESTIONS = 3

_TOGETHER = 6
"""How many files of the greatest size can be changed at once."""


class Places(Protocol):
    """The workspace, as far as it is needed here."""

    def regular(self, path: CanonicalPath) -> int: ...
    def folder(self, path: CanonicalPath) -> int: ...
    def place(self, path: CanonicalPath) -> Place: ...
    def is_hidden(self, path: CanonicalPath) -> bool: ...
    def kind(self, path: CanonicalPath) -> Literal["file", "folder", "other", "missing"]: ...


@dataclass(frozen=True, kw_only=True)
class _Request:
    """One change of a file."""

    path: CanonicalPath
    place: Place
    change: Callable[[bytes], bytes]
    expected_sha256: str | None
    creates: bool


_SMALL = 64 * 1024
"""Bytes that are read at once; handing them to a thread would take longer."""


class ConfinedFiles:
    """The files of a workspace, as `capabilities.Files`."""

    def __init__(self, places: Places, *, locks: PathLocks, size_limit: int, write: bool) -> None:
        self._places = places
        self._locks = locks
        self._size_limit = size_limit
        self._write = write

    async def read(self, path: CanonicalPath, reader: Callable[[BinaryIO, int], T]) -> T:
        try:
            fd = self._places.regular(path)
        except NotFound as error:
            raise await to_thread.run_sync(self._missing, path, error) from None
        content = _small(path, fd)
        if content is not None:
            return reader(BytesIO(content), len(content))
        # A caller who has given up does not wait for the thread; the file is closed with the object then.
        file = os.fdopen(fd, "rb")
        return await to_thread.run_sync(_read, path, file, reader, abandon_on_cancel=True)

    async def write(
        self, path: CanonicalPath, content: bytes, *, expected_sha256: str | None = None
    ) -> Written:
        return await self._changed(path, lambda _: content, expected_sha256, creates=True)

    async def update(
        self, path: CanonicalPath, change: Callable[[bytes], bytes], *, expected_sha256: str | None = None
    ) -> Written:
        return await self._changed(path, change, expected_sha256, creates=False)

    async def update_all(
        self, paths: Sequence[CanonicalPath], change: Callable[[Contents], Sequence[FileChange]]
    ) -> Mapping[CanonicalPath, Written]:
        self._check_declared()
        places = {path: self._places.place(path) for path in paths}
        async with AsyncExitStack() as stack:
            # In one order, so that two such calls cannot wait for each other.
            for absolute in sorted({place.absolute for place in places.values()}):
                await stack.enter_async_context(self._locks.hold(absolute))
            return await to_thread.run_sync(self._change_all, places, change)

    async def make_folder(self, path: CanonicalPath) -> bool:
        self._check_declared()
        return await to_thread.run_sync(self._make_folder, path)

    async def folders(self, query: FolderQuery) -> Mapping[str, FolderContent]:
        # Nothing waits for the thread of a caller who has given up; it ends by itself.
        return await to_thread.run_sync(folders, self._places, query, abandon_on_cancel=True)

    def _check_declared(self) -> None:
        if not self._write:
            raise RuntimeError("the tool changes files but did not declare fs_write")

    async def _changed(
        self,
        path: CanonicalPath,
        change: Callable[[bytes], bytes],
        expected_sha256: str | None,
        *,
        creates: bool,
    ) -> Written:
        self._check_declared()
        request = _Request(
            path=path,
            place=self._places.place(path),
            change=change,
            expected_sha256=expected_sha256,
            creates=creates,
        )
        async with self._locks.hold(request.place.absolute):
            return await to_thread.run_sync(self._change, request)

    def _change(self, request: _Request) -> Written:
        with explained(request.path), self._old(request.path, creates=request.creates) as old:
            before = b"" if old is None else self._content(old, request.path)
            _check_expected(request, before, old)
            after = request.change(before)
            self._check_size(len(after), request.path)
            if old is None or after != before:
                _put(request, after, old)
            return _written(before, after, old)

    def _change_all(
        self,
        places: Mapping[CanonicalPath, Place],
        change: Callable[[Contents], Sequence[FileChange]],
    ) -> Mapping[CanonicalPath, Written]:
        with ExitStack() as stack:
            olds = {path: stack.enter_context(self._old(path, creates=True)) for path in places}
            self._check_sum(olds)
            before = {path: None if old is None else self._read(old, path) for path, old in olds.items()}
            changes = change(before)
            for one in changes:
                self._check_size(len(one.content or b""), one.path)
            carry_out([_step(one, places[one.path], olds) for one in changes])
            return {
                one.path: _written(before[one.path] or b"", one.content or b"", olds[one.path])
                for one in changes
            }

    def _check_sum(self, olds: Mapping[CanonicalPath, Old | None]) -> None:
        total = sum(old.status.st_size for old in olds.values() if old)
        if total > _TOGETHER * self._size_limit:
            raise InvalidInput(
                f"These files have {total} bytes together. At most {_TOGETHER * self._size_limit} can be "
                "changed at once; change fewer files in one call."
            )

    def _read(self, old: Old, path: CanonicalPath) -> bytes:
        with explained(path):
            return self._content(old, path)

    def _make_folder(self, path: CanonicalPath) -> bool:
        kind = self._places.kind(path)
        if kind == "folder":
            return False
        if kind != "missing":
            raise Conflict(f"'{path}' exists and is no folder. Choose another name.")
        place = self._places.place(path)
        try:
            with explained(path), folder_to_write(place.engine, place.root.fd, place.inner):
                return True
        except Changed:
            raise Conflict(f"'{path}' was made or moved by somebody meanwhile. Try again.") from None

    @contextmanager
    def _old(self, path: CanonicalPath, *, creates: bool) -> Generator[Old | None]:
        """The file as it is; None when there is none and one may be made."""
        try:
            fd = self._places.regular(path)
        except NotFound as error:
            if not creates:
                raise self._missing(path, error) from None
            fd = None
        if fd is None:
            yield None
            return
        try:
            yield Old(fd=fd, status=os.fstat(fd))
        finally:
            os.close(fd)

    def _content(self, old: Old, path: CanonicalPath) -> bytes:
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
        """The error with names that the caller may have meant."""
        similar = self._similar(path)
        return NotFound(f"{error} Did you mean {', '.join(similar)}?" if similar else str(error))

    def _similar(self, path: CanonicalPath) -> list[str]:
        parent, slash, wanted = path.rpartition("/")
        folder = CanonicalPath(parent or slash or ".")
        names: list[str] = []
        with suppress(ToolError, OSError):
            fd = self._places.folder(folder)
            try:
                with os.scandir(fd) as entries:
                    names = [entry.name for entry in islice(entries, _SIBLINGS)]
            finally:
                os.close(fd)
        paths = [CanonicalPath(f"{parent}{slash}{name}") for name in difflib.get_close_matches(wanted, names)]
        return [f"'{path}'" for path in paths if _is_sendable(path) and not self._places.is_hidden(path)]


def _small(path: CanonicalPath, fd: int) -> bytes | None:
    """All of a small file, which is closed then; None for another, and for one that is just changing."""
    with explained(path):
        try:
            size = os.fstat(fd).st_size
            content = os.pread(fd, size + 1, 0) if size <= _SMALL else b""
        except OSError:
            os.close(fd)
            raise
    if len(content) != size:
        return None
    os.close(fd)
    return content


def _read(path: CanonicalPath, file: BinaryIO, reader: Callable[[BinaryIO, int], T]) -> T:
    with explained(path), file:
        return reader(file, os.fstat(file.fileno()).st_size)


def _is_sendable(path: str) -> bool:
    return path.isprintable()


def _check_expected(request: _Request, before: bytes, old: Old | None) -> None:
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


def _written(before: bytes, after: bytes, old: Old | None) -> Written:
    return Written(
        created=old is None,
        before=before,
        after=after,
        sha256=hashlib.sha256(after).hexdigest(),
        links=old.status.st_nlink if old else 0,
    )


def _step(change: FileChange, place: Place, olds: Mapping[CanonicalPath, Old | None]) -> Step:
    return Step(
        path=change.path,
        place=place,
        old=olds[change.path],
        content=change.content,
        like=olds[change.like or change.path],
        executable=change.executable,
    )


def _put(request: _Request, content: bytes, old: Old | None) -> None:
    place = request.place
    try:
        with folder_to_write(place.engine, place.root.fd, place.folder) as folder:
            if old is not None:
                old.check(folder, place.name)
                refuse_read_only(request.path, old, folder, place.name)
            replace(folder, place.name, content, old)
    except Changed:
        raise changed_meanwhile(request.path) from None
