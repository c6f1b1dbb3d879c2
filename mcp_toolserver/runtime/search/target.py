"""The open folder in which ripgrep runs, and its standard input."""

import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import InvalidInput, NotFound
from mcp_toolserver.runtime.anonymous_file import anonymous_file
from mcp_toolserver.runtime.search.ignore_rules import inherited


class SearchableFiles(Protocol):
    """The part of the workspace that a search needs."""

    def kind(self, path: CanonicalPath) -> Literal["file", "folder", "other", "missing"]:
        """Raises: Denied: hidden, or outside the roots."""
        ...

    def open_dir(self, path: CanonicalPath) -> int:
        """The folder, open; the caller closes it."""
        ...

    def open_file(self, path: CanonicalPath) -> int:
        """The regular file, open for reading; the caller closes it."""
        ...

    def is_hidden(self, path: CanonicalPath) -> bool:
        """Whether a rule of the operator hides the path."""
        ...


@dataclass(frozen=True, kw_only=True)
class SearchTarget:
    """An open folder to search."""

    path: CanonicalPath
    """The path that results are relative to."""
    folder: int
    file: CanonicalPath | None = None
    """The single file to search, which is then standard input."""
    stdin: int | None = None

    @property
    def has_rules(self) -> bool:
        """Whether standard input holds ignore rules."""
        return self.file is None and self.stdin is not None

    def rewind(self) -> None:
        """Rewind standard input to its start."""
        if self.stdin is not None:
            os.lseek(self.stdin, 0, os.SEEK_SET)


@contextmanager
def open_target(workspace: SearchableFiles, path: CanonicalPath, *, ignored: bool) -> Generator[SearchTarget]:
    """Open the folder or file at `path`; add ignore rules from above unless `ignored` files are wanted.

    Raises:
        NotFound: if missing.
        Denied: if hidden or unreadable.
        InvalidInput: if neither a file nor a folder.
    """
    with ExitStack() as stack:

        def kept(fd: int) -> int:
            stack.callback(os.close, fd)
            return fd

        match workspace.kind(path):
            case "folder":
                rules = b"" if ignored else inherited(workspace, path)
                stdin = kept(_holding(rules)) if rules else None
                yield SearchTarget(path=path, folder=kept(workspace.open_dir(path)), stdin=stdin)
            case "file":
                parent = CanonicalPath(path.rpartition("/")[0] or ("/" if path.startswith("/") else "."))
                folder = kept(workspace.open_dir(parent))
                yield SearchTarget(
                    path=parent, folder=folder, file=path, stdin=kept(workspace.open_file(path))
                )
            case "missing":
                raise NotFound(f"'{path}' does not exist. Search a folder above it.")
            case "other":
                raise InvalidInput(f"'{path}' is neither a file nor a folder. Search a folder.")


def _holding(content: bytes) -> int:
    """An unnamed file with this content."""
    fd = anonymous_file("ignore rules")
    with os.fdopen(fd, "wb", closefd=False) as file:
        file.write(content)
    return fd
