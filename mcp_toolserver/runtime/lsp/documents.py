"""Keeps what a language server knows equal to the files on disk: the open documents, and the project's files.

For a server, the text of an open document takes precedence over the file. Every query therefore first
compares the open documents with their files, and only a few stay open. The changed files of the project are
found by polling, because language servers leave that to their clients.
"""

import os
import stat
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import BinaryIO, Literal
from urllib.parse import quote_from_bytes, unquote_to_bytes, urlsplit

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import InvalidInput, ToolError
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.git.runner import RACY_WINDOW_NS
from mcp_toolserver.text.code.positions import code_lines

MOST_BYTES = 4 << 20
"""Bytes of one document; language servers handle larger ones badly."""

MOST_OPEN = 8

MOST_TEXT = 300
"""Characters of a line that are shown."""

_VERSIONS = 32
"""Of a document, that are remembered."""


def to_uri(path: str) -> str:
    return f"file://{quote_from_bytes(os.fsencode(path))}"


def to_path(uri: str) -> str | None:
    """Return the absolute local path of `uri`; None if it has none."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    path = os.fsdecode(unquote_to_bytes(parts.path))
    return path if path.startswith("/") and "\0" not in path else None


@dataclass(frozen=True)
class FileText:
    text: str
    state: tuple[int, ...]
    """Its status when it was read; empty if a later change may leave that as it is."""


async def read_text(path: CanonicalPath, files: Workspace, previous: FileText | None = None) -> FileText:
    """Read a file; return `previous` if it has not changed. Raises: NotFound, Denied, InvalidInput."""

    def work() -> FileText:
        with os.fdopen(files.open_file(path), "rb") as file:
            now, status = time.time_ns(), os.fstat(file.fileno())
            kind = stat.S_IFMT(status.st_mode)
            times = status.st_mtime_ns, status.st_ctime_ns
            state = (status.st_dev, status.st_ino, kind, status.st_size, *times)
            if previous is not None and previous.state == state:
                return previous
            content = _content(path, file)
        is_stable = max(times) < now - RACY_WINDOW_NS
        return FileText(content.decode("utf-8-sig", "replace"), state if is_stable else ())

    return await files.read(path, work)


async def read_bytes(path: CanonicalPath, files: Workspace) -> bytes:
    """Read a file that is to be changed. Raises: as for `read_text`."""

    def work() -> bytes:
        with os.fdopen(files.open_file(path), "rb") as file:
            return _content(path, file)

    return await files.read(path, work)


def _content(path: CanonicalPath, file: BinaryIO) -> bytes:
    content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        size = max(len(content), os.fstat(file.fileno()).st_size)
        raise InvalidInput(
            f"'{path}' has {size:,} bytes; language servers get files of at most {MOST_BYTES:,}. Use "
            "grep_search for it."
        )
    return content


class Document:
    def __init__(self, uri: str, version: int, seen: FileText) -> None:
        self.uri = uri
        self._hashes: dict[int, int] = {}
        """Of the text of the last versions."""
        self.set(version, seen)

    def set(self, version: int, seen: FileText) -> None:
        """Remember the version that is sent now."""
        self.version, self.seen = version, seen
        self.lines = code_lines(seen.text)
        self.sent_at = monotonic()
        self._hashes[version] = hash(seen.text)
        if len(self._hashes) > _VERSIONS:
            del self._hashes[next(iter(self._hashes))]

    def is_current(self, version: int) -> bool:
        """Whether `version` had the text of now. clangd skips a version that changes a file back, and goes on
        naming the one before."""
        return self._hashes.get(version) == hash(self.seen.text)


class Documents:
    """The documents open in one server, by absolute path. `notify` sends a notification."""

    def __init__(self, notify: Callable[[str, object], None]) -> None:
        self._notify = notify
        self._open: dict[CanonicalPath, Document] = {}
        self._version = 0

    async def refresh(self, files: Workspace) -> bool:
        """Send changed and removed documents to the server; return whether there were any."""
        changed = False
        for path, document in tuple(self._open.items()):
            try:
                seen = await read_text(path, files, document.seen)
            except ToolError:
                self._close(path)
                changed = True
                continue
            if seen.text == document.seen.text:
                document.seen = seen
                continue
            changed = True
            self._version += 1
            document.set(self._version, seen)
            change = [{"text": seen.text}]
            self._send("didChange", document.uri, {"version": document.version}, contentChanges=change)
        return changed

    async def open(self, path: CanonicalPath, language: str, files: Workspace) -> Document:
        """Open a file by its absolute path and return its document. Raises: as for `read_text`."""
        if (document := self._open.pop(path, None)) is not None:
            # The last used goes to the end.
            self._open[path] = document
            return document
        seen = await read_text(path, files)
        while len(self._open) >= MOST_OPEN:
            self._close(next(iter(self._open)))
        self._version += 1
        document = self._open[path] = Document(to_uri(path), self._version, seen)
        item = {"languageId": language, "version": document.version, "text": seen.text}
        self._send("didOpen", document.uri, item)
        return document

    def of(self, path: str) -> Document | None:
        return self._open.get(CanonicalPath(path))

    def save_all(self) -> None:
        """Report every open document as saved, which makes servers check its dependents."""
        for document in self._open.values():
            self._send("didSave", document.uri, {})

    def _close(self, path: CanonicalPath) -> None:
        self._send("didClose", self._open.pop(path).uri, {})

    def _send(self, event: str, uri: str, item: Mapping[str, object], **more: object) -> None:
        self._notify(f"textDocument/{event}", {"textDocument": {"uri": uri, **item}, **more})


# --- the files of a project ------------------------------------------------------------------------------

MOST_ENTRIES = 30_000
"""Largest number of entries; others are not watched."""

_LEFT_OUT = frozenset({"node_modules", "__pycache__", "site-packages"})
"""Folders that are skipped, as are hidden ones."""

State = Mapping[str, tuple[int, int, int]]
"""Inode, size and modification time by absolute path."""

Kind = Literal[1, 2, 3]
CREATED: Kind = 1
CHANGED: Kind = 2
DELETED: Kind = 3
"""The values of the Language Server Protocol."""


class FileWatcher:
    """Watches the files below `folder` whose names end with one of `endings` or are among `names`:
    compares their sizes and times, and does not follow links."""

    def __init__(self, folder: str, endings: tuple[str, ...], names: Collection[str]) -> None:
        self._folder = folder
        self._endings = endings
        self._names = names
        self._state: State = {}

    def __len__(self) -> int:
        return len(self._state)

    def poll(self) -> list[tuple[str, Kind]]:
        """Return the changes since the last poll."""
        before, after = self._state, self._scan()
        self._state = after
        # Comparing everything at once is much faster in the usual case of no change.
        if after == before:
            return []
        changed: list[tuple[str, Kind]] = [
            (path, CHANGED if path in before else CREATED)
            for path in after
            if after[path] != before.get(path)
        ]
        changed.extend((path, DELETED) for path in before if path not in after)
        return changed

    def _scan(self) -> State:
        files: list[str] = []
        folders = [self._folder]
        left = MOST_ENTRIES
        for folder in folders:
            with suppress(OSError), os.scandir(folder) as found:
                for entry in islice(found, left):
                    left -= 1
                    name = entry.name
                    if name.endswith(self._endings) or name in self._names:
                        files.append(entry.path)
                    elif name[0] != "." and entry.is_dir(follow_symlinks=False) and name not in _LEFT_OUT:
                        folders.append(entry.path)
        return {path: state for path in files if (state := _state(path))}


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
