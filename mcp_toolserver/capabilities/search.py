"""Finding files and lines inside the roots."""

from dataclasses import dataclass
from typing import Literal, Protocol

from mcp_toolserver.capabilities.files import CanonicalPath


@dataclass(frozen=True, kw_only=True)
class FileQuery:
    """Which files to list."""

    pattern: str
    path: CanonicalPath
    hidden: bool = False
    ignored: bool = False
    """Also list what .gitignore and its kin exclude."""
    limit: int


@dataclass(frozen=True, kw_only=True)
class FoundFiles:
    """Files by time of change, newest first; equal times by path."""

    files: tuple[str, ...]
    total: int
    """How many matched, listed or not."""
    errors: tuple[str, ...] = ()
    """Places that could not be read, each with the reason."""


SearchMode = Literal["files_with_matches", "content", "count"]


@dataclass(frozen=True, kw_only=True)
class LineQuery:
    """Which lines to find. The pattern is a Rust regular expression."""

    pattern: str
    path: CanonicalPath
    mode: SearchMode
    glob: str | None = None
    type: str | None = None
    before: int = 0
    after: int = 0
    ignore_case: bool = False
    multiline: bool = False
    line_numbers: bool = True
    hidden: bool = False
    ignored: bool = False
    limit: int
    """Entries to give: files, matching lines or counts, by `mode`; 0 is no limit."""
    offset: int = 0
    """Entries to skip first."""


@dataclass(frozen=True, kw_only=True)
class FoundLines:
    """What a line query found, ready to show, in path order."""

    text: str
    """One entry a line; in content mode `path:line:text`, context as `path-line-text`."""
    shown: int
    """Entries in `text`."""
    total: int
    """Entries that matched in all."""
    complete: bool
    """Whether `total` is exact; false when the search ended early."""
    files: int
    """Files with at least one match."""
    matches: int
    """Matching lines in all (count mode: the sum of the counts)."""
    errors: tuple[str, ...] = ()


class Search(Protocol):
    """Searching inside the roots; links are not followed."""

    async def files(self, query: FileQuery) -> FoundFiles:
        """Raises: InvalidInput: a pattern that leaves the folder or explodes."""
        ...

    async def lines(self, query: LineQuery) -> FoundLines:
        """Raises: InvalidInput: a pattern that does not compile; the text says where."""
        ...
