"""The documents that a language server has open, kept as the files on disk are.

What a server was told of an open document counts more for it than the file. So before every question each
open document is compared with its file, and few stay open.
"""

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic

from anyio import to_thread

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import InvalidInput, ToolError
from mcp_toolserver.runtime.git_known import SETTLED
from mcp_toolserver.runtime.lsp.uris import to_uri
from mcp_toolserver.text.code_positions import code_lines

MOST_BYTES = 4 << 20
"""Of a document; language servers are not made for larger ones."""

MOST_OPEN = 8

_SMALL = 64 << 10
"""Bytes that are read at once; handing them to a thread would take longer."""

_MOST_PAGES = 64

Tell = Callable[[str, object], None]
"""Sends a notification."""

Open = Callable[[CanonicalPath], int]
"""Opens a file of the workspace for reading, if it may be read."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A file as it was read."""

    text: str
    state: tuple[int, ...]
    is_settled: bool
    """Whether no later change can look the same, for want of ticks of the file system's clock."""


@dataclass(kw_only=True)
class Document:
    """An open document."""

    uri: str
    version: int
    seen: Seen
    lines: list[str]
    told: float = field(default_factory=monotonic)
    """When the server was told of this version."""


async def read(path: CanonicalPath, opening: Open, known: Seen | None = None) -> Seen:
    """The text of a file; `known` itself when that has not changed.

    Raises:
        NotFound, Denied, InvalidInput: it is not there, not for reading, or no text of a bearable size.
    """
    fd = opening(path)
    try:
        status = os.fstat(fd)
        if known is not None and known.is_settled and known.state == _state(status):
            return known
        _refuse_large(path, status.st_size)
        if status.st_size <= _SMALL:
            return _read(path, fd)
        # A caller who gives up leaves the thread its own descriptor.
        copy = os.dup(fd)
        return await to_thread.run_sync(_read_and_close, path, copy, abandon_on_cancel=True)
    finally:
        os.close(fd)


def _read_and_close(path: CanonicalPath, fd: int) -> Seen:
    try:
        return _read(path, fd)
    finally:
        os.close(fd)


def _read(path: CanonicalPath, fd: int) -> Seen:
    now = time.time_ns()
    status = os.fstat(fd)
    with os.fdopen(os.dup(fd), "rb") as file:
        content = file.read(MOST_BYTES + 1)
    _refuse_large(path, len(content))
    return Seen(
        text=content.decode("utf-8-sig", "replace"),
        state=_state(status),
        is_settled=max(status.st_mtime_ns, status.st_ctime_ns) < now - SETTLED,
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


class Pages:
    """The lines of files that were shown before, taken apart anew only when a file is not what it was."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Seen, list[str]]] = {}

    async def lines(self, uri: str, path: CanonicalPath, opening: Open) -> list[str]:
        """The lines of the file at `path`, for which servers say `uri`.

        Raises:
            NotFound, Denied, InvalidInput: as for `read`.
        """
        before = self._kept.pop(uri, None)
        seen = await read(path, opening, None if before is None else before[0])
        lines = before[1] if before is not None and before[0] is seen else code_lines(seen.text)
        if len(seen.text) <= _SMALL:
            # The last used goes to the end.
            self._kept[uri] = seen, lines
        while len(self._kept) > _MOST_PAGES:
            del self._kept[next(iter(self._kept))]
        return lines


class Documents:
    """What one server has open, by absolute path; `tell` tells it."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._open: dict[CanonicalPath, Document] = {}
        self._version = 0

    async def refresh(self, opening: Open) -> bool:
        """Tell the server of open documents that have changed or are gone; whether there were any."""
        changed = False
        for path, document in tuple(self._open.items()):
            try:
                seen = await read(path, opening, document.seen)
            except ToolError:
                self._close(path)
                changed = True
                continue
            changed |= self._update(document, seen)
        return changed

    async def open(self, path: CanonicalPath, language: str, opening: Open) -> Document:
        """The document of the file at an absolute path, which the server has open now.

        Raises:
            NotFound, Denied, InvalidInput: as for `read`.
        """
        if (document := self._open.pop(path, None)) is not None:
            # The last used goes to the end.
            self._open[path] = document
            return document
        seen = await read(path, opening)
        while len(self._open) >= MOST_OPEN:
            self._close(next(iter(self._open)))
        self._version += 1
        document = Document(uri=to_uri(path), version=self._version, seen=seen, lines=code_lines(seen.text))
        self._open[path] = document
        told = {"uri": document.uri, "languageId": language, "version": document.version, "text": seen.text}
        self._tell("textDocument/didOpen", {"textDocument": told})
        return document

    def save_all(self) -> None:
        """Say of every open document that it was saved, which has servers look at what it depends on."""
        for document in self._open.values():
            self._tell("textDocument/didSave", {"textDocument": {"uri": document.uri}})

    def _update(self, document: Document, seen: Seen) -> bool:
        before, document.seen = document.seen, seen
        if seen.text == before.text:
            return False
        self._version += 1
        document.version = self._version
        document.lines = code_lines(seen.text)
        document.told = monotonic()
        identity = {"uri": document.uri, "version": document.version}
        self._tell(
            "textDocument/didChange", {"textDocument": identity, "contentChanges": [{"text": seen.text}]}
        )
        return True

    def _close(self, path: CanonicalPath) -> None:
        document = self._open.pop(path)
        self._tell("textDocument/didClose", {"textDocument": {"uri": document.uri}})
