"""Searching files and lines inside the roots."""

from dataclasses import dataclass
from typing import Literal

from mcp_toolserver.capabilities.files import CanonicalPath


@dataclass(frozen=True, kw_only=True)
class FileQuery:
    """Which files to list."""

    pattern: str
    path: CanonicalPath
    hidden: bool = False
    ignored: bool = False
    """Whether to include files that .gitignore and similar files exclude."""
    limit: int
    offset: int = 0
    """Number of files to skip."""


@dataclass(frozen=True, kw_only=True)
class FoundFiles:
    """Files sorted by modification time, newest first; equal times by path."""

    files: tuple[str, ...]
    total: int
    """Number of matches, including those not listed."""
    errors: tuple[str, ...] = ()
    """Paths that could not be read, each with the reason."""


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
    """Maximum entries: files, matching lines or counts, by `mode`; 0 for no limit."""
    offset: int = 0
    """Number of entries to skip."""


@dataclass(frozen=True, kw_only=True)
class FoundLines:
    """The formatted result of a line query, in path order."""

    text: str
    """One entry per line; in content mode `path:line:text`, context as `path-line-text`."""
    shown: int
    """Entries in `text`."""
    total: int
    """Number of all matching entries."""
    complete: bool
    """Whether `total` is exact; false when the search ended early."""
    files: int
    """Files with at least one match."""
    matches: int
    """Matching lines in all (count mode: the sum of the counts)."""
    errors: tuple[str, ...] = ()
