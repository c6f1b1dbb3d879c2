"""The open folder in which ripgrep runs, and its standard input."""

import os
import weakref
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import InvalidInput, NotFound
from mcp_toolserver.runtime.anonymous_file import anonymous_file
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.search.display_path import parent
from mcp_toolserver.runtime.search.ignore_rules import inherited


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchTarget:
    """An open folder to search. Its descriptors are closed with it: a caller may leave while it is opened."""

    path: CanonicalPath
    """The path that results are relative to."""
    folder: int
    file: CanonicalPath | None = None
    """The single file to search, which is then standard input."""
    stdin: int | None = None
    close: Callable[[], object] = field(init=False)

    def __post_init__(self) -> None:
        descriptors = [one for one in (self.folder, self.stdin) if one is not None]
        object.__setattr__(self, "close", weakref.finalize(self, _close, descriptors))

    @property
    def has_rules(self) -> bool:
        """Whether standard input holds ignore rules."""
        return self.file is None and self.stdin is not None

    def rewind(self) -> None:
        if self.stdin is not None:
            os.lseek(self.stdin, 0, os.SEEK_SET)


@asynccontextmanager
async def open_target(
    workspace: Workspace, path: CanonicalPath, *, ignored: bool
) -> AsyncGenerator[SearchTarget]:
    """Open the folder or file at `path`; add ignore rules from above unless `ignored` files are wanted.

    Raises:
        NotFound: if missing.
        Denied: if hidden or unreadable.
        InvalidInput: if neither a file nor a folder.
    """
    target = await workspace.read(path, partial(_open, workspace, path, ignored))
    try:
        yield target
    finally:
        target.close()


def _open(workspace: Workspace, path: CanonicalPath, ignored: bool) -> SearchTarget:
    match workspace.kind(path):
        case "folder":
            rules = b"" if ignored else inherited(workspace, path)
            folder = workspace.hold_dir(path)
            return SearchTarget(path=path, folder=folder, stdin=_holding(rules) if rules else None)
        case "file":
            above, stdin = parent(path), workspace.open_file(path)
            return SearchTarget(path=above, folder=workspace.hold_dir(above), file=path, stdin=stdin)
        case "missing":
            raise NotFound(f"'{path}' does not exist. Search a folder above it.")
        case "other":
            raise InvalidInput(f"'{path}' is neither a file nor a folder. Search a folder.")


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _holding(content: bytes) -> int:
    """An unnamed file with this content."""
    fd = anonymous_file("ignore rules")
    with os.fdopen(fd, "wb", closefd=False) as file:
        file.write(content)
    return fd
