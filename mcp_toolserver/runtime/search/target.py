"""Where a search runs: a folder opened beneath the root, and what the program gets on standard input."""

import os
import sys
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import InvalidInput, NotFound
from mcp_toolserver.runtime.ignore_rules import inherited


class Searched(Protocol):
    """What a search needs of the workspace."""

    def kind(self, path: CanonicalPath) -> Literal["file", "folder", "other", "missing"]:
        """Raises: Denied: hidden, or outside the roots."""
        ...

    def folder(self, path: CanonicalPath) -> int:
        """The folder, open; the caller closes it."""
        ...

    def regular(self, path: CanonicalPath) -> int:
        """The regular file, open for reading; the caller closes it."""
        ...

    def is_hidden(self, path: CanonicalPath) -> bool:
        """Whether a rule of the operator hides it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a search runs."""

    path: CanonicalPath
    """The folder that names are beneath."""
    folder: int
    file: CanonicalPath | None = None
    """The one file to search, which is then standard input."""
    stdin: int | None = None

    @property
    def has_rules(self) -> bool:
        """Whether standard input holds ignore rules."""
        return self.file is None and self.stdin is not None

    def rewind(self) -> None:
        """Let standard input be read from its start again."""
        if self.stdin is not None:
            os.lseek(self.stdin, 0, os.SEEK_SET)


@contextmanager
def opened(workspace: Searched, path: CanonicalPath, *, ignored: bool) -> Generator[Place]:
    """Open what lies at `path`; with ignore rules from above it unless `ignored` files are wanted.

    Raises:
        NotFound, Denied, InvalidInput: nothing there, not for reading, or neither a file nor a folder.
    """
    with ExitStack() as stack:

        def kept(fd: int) -> int:
            stack.callback(os.close, fd)
            return fd

        match workspace.kind(path):
            case "folder":
                rules = b"" if ignored else inherited(workspace, path)
                stdin = kept(_holding(rules)) if rules else None
                yield Place(path=path, folder=kept(workspace.folder(path)), stdin=stdin)
            case "file":
                parent = CanonicalPath(path.rpartition("/")[0] or ("/" if path.startswith("/") else "."))
                folder = kept(workspace.folder(parent))
                yield Place(path=parent, folder=folder, file=path, stdin=kept(workspace.regular(path)))
            case "missing":
                raise NotFound(f"'{path}' does not exist. Search a folder above it.")
            case "other":
                raise InvalidInput(f"'{path}' is neither a file nor a folder. Search a folder.")


def _holding(content: bytes) -> int:
    """A nameless file with this content; in memory where there is such a thing."""
    if sys.platform == "linux":
        fd = os.memfd_create("ignore rules")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    with os.fdopen(fd, "wb", closefd=False) as file:
        file.write(content)
    return fd
