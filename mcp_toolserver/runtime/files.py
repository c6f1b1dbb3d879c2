"""Reading and changing the files of a workspace."""

import difflib
import hashlib
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from typing import BinaryIO, Protocol, TypeVar

from anyio import to_thread

from mcp_toolserver.capabilities import CanonicalPath, Written
from mcp_toolserver.errors import Conflict, Denied, InvalidInput, NotFound, ToolError
from mcp_toolserver.runtime.atomic import Changed, Old, folder_to_write, replace
from mcp_toolserver.runtime.beneath import Engine
from mcp_toolserver.runtime.locks import PathLocks
from mcp_toolserver.runtime.refusals import explained
from mcp_toolserver.runtime.roots import Root

T = TypeVar("T")

_SIBLINGS = 2_000
"""Names of a folder that are compared with one that is not there."""

_SUGGESTIONS = 3


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a file lies or will lie."""

    engine: Engine
    root: Root
    folder: str
    """Relative to `root`, links resolved; `.` for the root itself."""
    name: str

    @property
    def absolute(self) -> str:
        """The path that all spellings of the file have in common."""
        return self.root.at(self.name if self.folder == "." else f"{self.folder}/{self.name}")


class Places(Protocol):
    """The workspace, as far as it is needed here."""

    def regular(self, path: CanonicalPath) -> int: ...
    def folder(self, path: CanonicalPath) -> int: ...
    def place(self, path: CanonicalPath) -> Place: ...
    def is_hidden(self, path: CanonicalPath) -> bool: ...


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

    async def _changed(
        self,
        path: CanonicalPath,
        change: Callable[[bytes], bytes],
        expected_sha256: str | None,
        *,
        creates: bool,
    ) -> Written:
        if not self._write:
            raise RuntimeError("the tool changes files but did not declare fs_write")
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
        with explained(request.path), self._old(request) as old:
            before = b"" if old is None else self._content(old, request.path)
            _check_expected(request, before, old)
            after = request.change(before)
            self._check_size(len(after), request.path)
            if old is None or after != before:
                _put(request, after, old)
            return Written(
                created=old is None,
                before=before,
                after=after,
                sha256=hashlib.sha256(after).hexdigest(),
                links=old.status.st_nlink if old else 0,
            )

    @contextmanager
    def _old(self, request: _Request) -> Generator[Old | None]:
        """The file as it is; None when there is none and one may be made."""
        try:
            fd = self._places.regular(request.path)
        except NotFound as error:
            if not request.creates:
                raise self._missing(request.path, error) from None
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
            raise _changed_meanwhile(path)
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


def _put(request: _Request, content: bytes, old: Old | None) -> None:
    place = request.place
    try:
        with folder_to_write(place.engine, place.root.fd, place.folder) as folder:
            if old is not None:
                old.check(folder, place.name)
                _refuse_read_only(request.path, old, folder, place.name)
            replace(folder, place.name, content, old)
    except Changed:
        raise _changed_meanwhile(request.path) from None


def _refuse_read_only(path: str, old: Old, folder: int, name: str) -> None:
    """A new file could take the place of a read-only one, but whoever made it read-only did not want that."""
    own = os.access in os.supports_effective_ids
    if not old.status.st_mode & 0o222 or not os.access(name, os.W_OK, dir_fd=folder, effective_ids=own):
        raise Denied(f"'{path}' is read-only. Ask the user to make it writable, or write another file.")


def _changed_meanwhile(path: str) -> Conflict:
    return Conflict(
        f"'{path}' was changed by somebody meanwhile; nothing was written. Read it again, then retry."
    )
