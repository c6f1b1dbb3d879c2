"""Tracks the documents open in a language server and keeps them equal to the files on disk.

For a server, the text of an open document takes precedence over the file. Every query therefore first
compares the open documents with their files, and only a few stay open.
"""

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Protocol, TypeVar

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import InvalidInput, ToolError
from mcp_toolserver.runtime.git.repository_cache import RACY_WINDOW_NS
from mcp_toolserver.runtime.lsp.uris import to_uri
from mcp_toolserver.text.code.positions import code_lines

MOST_BYTES = 4 << 20
"""Bytes of one document; language servers handle larger ones badly."""

MOST_OPEN = 8

_VERSIONS = 32
"""Of a document, that are remembered."""

_SMALL = 64 << 10
"""Characters of a file whose lines are cached."""

_MOST_PAGES = 64

Notify = Callable[[str, object], None]
"""Sends a notification."""

T = TypeVar("T")


class ReadableFiles(Protocol):
    """The part of the workspace that is needed here."""

    async def read(self, path: CanonicalPath, work: Callable[[], T]) -> T:
        """Run `work`, which opens and reads `path`, where it may hang."""
        ...

    def open_file(self, path: CanonicalPath) -> int:
        """Open a workspace file for reading, if permitted."""
        ...


@dataclass(frozen=True, kw_only=True)
class FileText:
    """The text of a file and its state when it was read."""

    text: str
    state: tuple[int, ...]
    is_stable: bool
    """Whether any later change will have a different timestamp."""


@dataclass(kw_only=True)
class Document:
    """An open document."""

    uri: str
    version: int
    seen: FileText
    lines: list[str]
    sent_at: float = field(default_factory=monotonic)
    """When this version was sent to the server."""
    _hashes: dict[int, int] = field(default_factory=dict[int, int])
    """Of the text of the last versions."""

    def __post_init__(self) -> None:
        self.sent()

    def sent(self) -> None:
        """Remember the text of the version that is sent now."""
        self._hashes[self.version] = hash(self.seen.text)
        if len(self._hashes) > _VERSIONS:
            del self._hashes[next(iter(self._hashes))]

    def is_current(self, version: int) -> bool:
        """Whether `version` had the text of now. clangd skips a version that changes a file back, and goes on
        naming the one before."""
        return self._hashes.get(version) == hash(self.seen.text)


async def read_text(path: CanonicalPath, files: ReadableFiles, previous: FileText | None = None) -> FileText:
    """Read a file; return `previous` if it has not changed.

    Raises:
        NotFound, Denied, InvalidInput: the file is missing, unreadable or too large.
    """
    return await files.read(path, partial(_read, path, files.open_file, previous))


async def read_bytes(path: CanonicalPath, files: ReadableFiles) -> bytes:
    """Read a file that is to be changed.

    Raises:
        NotFound, Denied, InvalidInput: the file is missing, unreadable or too large.
    """
    content = await files.read(path, partial(_read_bytes, path, files.open_file))
    _refuse_large(path, len(content))
    return content


def _read_bytes(path: CanonicalPath, open_file: Callable[[CanonicalPath], int]) -> bytes:
    with os.fdopen(open_file(path), "rb") as file:
        return file.read(MOST_BYTES + 1)


def _read(
    path: CanonicalPath, open_file: Callable[[CanonicalPath], int], previous: FileText | None
) -> FileText:
    with os.fdopen(open_file(path), "rb") as file:
        now = time.time_ns()
        status = os.fstat(file.fileno())
        if previous is not None and previous.is_stable and previous.state == _state(status):
            return previous
        _refuse_large(path, status.st_size)
        content = file.read(MOST_BYTES + 1)
    _refuse_large(path, len(content))
    return FileText(
        text=content.decode("utf-8-sig", "replace"),
        state=_state(status),
        is_stable=max(status.st_mtime_ns, status.st_ctime_ns) < now - RACY_WINDOW_NS,
    )


def _refuse_large(path: CanonicalPath, size: int) -> None:
    if size > MOST_BYTES:
        raise InvalidInput(
            f"'{path}' has {size:,} bytes; language servers get files of at most {MOST_BYTES:,}. Use "
            "grep_search for it."
        )


def _state(status: os.stat_result) -> tuple[int, ...]:
    return (
        status.st_dev,
        status.st_ino,
        stat.S_IFMT(status.st_mode),
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


class LineCache:
    """Caches the lines of displayed files until the files change."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[FileText, list[str]]] = {}

    async def lines(self, uri: str, path: CanonicalPath, files: ReadableFiles) -> list[str]:
        """Return the lines of the file at `path`, which servers call `uri`.

        Raises:
            NotFound, Denied, InvalidInput: as for `read_text`.
        """
        before = self._entries.pop(uri, None)
        seen = await read_text(path, files, None if before is None else before[0])
        lines = before[1] if before is not None and before[0] is seen else code_lines(seen.text)
        if len(seen.text) <= _SMALL:
            # The last used goes to the end.
            self._entries[uri] = seen, lines
        while len(self._entries) > _MOST_PAGES:
            del self._entries[next(iter(self._entries))]
        return lines


class Documents:
    """The documents open in one server, by absolute path."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        self._open: dict[CanonicalPath, Document] = {}
        self._version = 0

    async def refresh(self, files: ReadableFiles) -> bool:
        """Send changed and removed documents to the server; return whether there were any."""
        changed = False
        for path, document in tuple(self._open.items()):
            try:
                seen = await read_text(path, files, document.seen)
            except ToolError:
                self._close(path)
                changed = True
                continue
            changed |= self._update(document, seen)
        return changed

    async def open(self, path: CanonicalPath, language: str, files: ReadableFiles) -> Document:
        """Open a file by its absolute path and return its document.

        Raises:
            NotFound, Denied, InvalidInput: as for `read_text`.
        """
        if (document := self._open.pop(path, None)) is not None:
            # The last used goes to the end.
            self._open[path] = document
            return document
        seen = await read_text(path, files)
        while len(self._open) >= MOST_OPEN:
            self._close(next(iter(self._open)))
        self._version += 1
        document = Document(uri=to_uri(path), version=self._version, seen=seen, lines=code_lines(seen.text))
        self._open[path] = document
        item = {
            "uri": document.uri,
            "languageId": language,
            "version": document.version,
            "text": seen.text,
        }
        self._notify("textDocument/didOpen", {"textDocument": item})
        return document

    def of(self, path: str) -> Document | None:
        """Return the open document of an absolute path."""
        return self._open.get(CanonicalPath(path))

    def save_all(self) -> None:
        """Report every open document as saved, which makes servers check its dependents."""
        for document in self._open.values():
            self._notify("textDocument/didSave", {"textDocument": {"uri": document.uri}})

    def _update(self, document: Document, seen: FileText) -> bool:
        before, document.seen = document.seen, seen
        if seen.text == before.text:
            return False
        self._version += 1
        document.version = self._version
        document.lines = code_lines(seen.text)
        document.sent_at = monotonic()
        document.sent()
        identity = {"uri": document.uri, "version": document.version}
        self._notify(
            "textDocument/didChange", {"textDocument": identity, "contentChanges": [{"text": seen.text}]}
        )
        return True

    def _close(self, path: CanonicalPath) -> None:
        document = self._open.pop(path)
        self._notify("textDocument/didClose", {"textDocument": {"uri": document.uri}})
