"""Reading, changing and listing files inside the roots."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NewType

CanonicalPath = NewType("CanonicalPath", str)
"""A path in the one spelling that rules match and capabilities take: `/`-separated, links resolved, relative
to the first root, or absolute when it lies in another root. Made by the host, never by a tool."""


@dataclass(frozen=True, kw_only=True)
class Previous:
    """The content that a write replaced, kept for undo."""

    handle: str = ""
    """For `ConfinedFiles.restore`; empty if the content is not kept."""
    path: str = ""
    """Absolute; `read_file` reads it."""
    why: str = ""
    """Why the content is not kept."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a write did."""

    created: bool
    before: bytes
    """The content before; empty when the file was created."""
    after: bytes
    sha256: str
    """Of `after`, in hexadecimal."""
    links: int
    """Hard links the old file had. Above 1, the other names keep the old content."""
    previous: Previous | None = None
    """What became of the old content; None if there was none, or if nothing changed."""


@dataclass(frozen=True, kw_only=True)
class FileChange:
    """What is to become of one file."""

    path: CanonicalPath
    content: bytes | None
    """None: the file goes away."""
    like: CanonicalPath | None = None
    """The file whose mode bits and attributes a new one gets: one of those that are changed together."""
    executable: bool | None = None
    """Whether it may be run from now on; None: as before."""


Contents = Mapping[CanonicalPath, bytes | None]
"""What files hold now; None for one that is not there."""


EntryKind = Literal["file", "folder", "link", "FIFO", "socket", "device"]


@dataclass(frozen=True, kw_only=True)
class FolderQuery:
    """What to list."""

    path: CanonicalPath
    depth: int = 1
    """How many levels of folders to look into."""
    hidden: bool = False
    """Also names that start with a dot."""
    ignored: bool = True
    """Also what .gitignore and its kin exclude."""
    details: bool = False
    """Size and time of change too."""
    limit: int
    """Entries to give in all; upper levels come first."""
    each: int
    """Entries to give of one folder."""
    skip: int = 0
    """Entries of each folder to leave out first."""


@dataclass(frozen=True, kw_only=True)
class FolderEntry:
    """One name in a folder. Links are named, not followed."""

    name: str
    kind: EntryKind
    size: int | None = None
    changed: float | None = None
    """Seconds since 1970."""


@dataclass(frozen=True, kw_only=True)
class FolderContent:
    """What a folder holds, by name."""

    entries: tuple[FolderEntry, ...]
    total: int
    """How many there are, given or not."""
    dots: int = 0
    """Names with a dot in front, which were not asked for."""
    complete: bool = True
    """Whether `total` counts all of them; false for a huge folder."""
    error: str = ""
    """Why it could not be looked into."""
