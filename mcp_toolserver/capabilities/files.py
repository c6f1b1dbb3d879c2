"""Reading, changing and listing files inside the roots."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Literal, NewType, Protocol, TypeVar

T = TypeVar("T")

CanonicalPath = NewType("CanonicalPath", str)
"""A path in the one spelling that rules match and capabilities take: `/`-separated, links resolved, relative
to the first root, or absolute when it lies in another root. Made by the host, never by a tool."""


@dataclass(frozen=True, kw_only=True)
class Previous:
    """The content that a write replaced, kept for undo."""

    handle: str = ""
    """For `Files.restore`; empty if the content is not kept."""
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


class Files(Protocol):
    """Files inside the roots. Every path is opened below a root by the kernel; a link cannot lead out.

    All methods raise `NotFound`, `Denied` (outside the roots, or hidden by a rule), `InvalidInput` (not a
    regular file) and never hang on a FIFO or a device.
    """

    async def read(self, path: CanonicalPath, reader: Callable[[BinaryIO, int], T]) -> T:
        """Give the open regular file and its size in bytes to `reader`, in a worker thread."""
        ...

    async def check_writable(self, path: CanonicalPath) -> None:
        """Find out, without changing anything, whether `write` may put a file at `path`.

        For work that is wasted when it may not, such as a download. The write checks again.

        Raises:
            Denied: the path is protected, hidden, or in a folder that can only be read.
            InvalidInput: a folder or a special file is there.
        """
        ...

    async def write(
        self,
        path: CanonicalPath,
        content: bytes,
        *,
        expected_sha256: str | None = None,
        overwrite: bool = False,
    ) -> Written:
        """Create or replace a file atomically, with its parents; mode bits are kept.

        Raises:
            Conflict: `expected_sha256` is given and the file is gone or has other content. Without it and
                `overwrite`: the session has neither read nor written the file as it is, and more than half
                of it would go, or it cannot be kept for undo.
        """
        ...

    async def restore(
        self, path: CanonicalPath, handle: str, *, expected_sha256: str | None = None
    ) -> Written:
        """Put back the content of `path` that is kept under `handle`, a `Previous.handle` of the session.

        Raises:
            NotFound: nothing is kept under `handle`, or the content of another file.
            Conflict: as for `write` with `expected_sha256`.
        """
        ...

    async def update(
        self, path: CanonicalPath, change: Callable[[bytes], bytes], *, expected_sha256: str | None = None
    ) -> Written:
        """Replace a file's content by `change(content)`, atomically and serially with other changes of it.

        Raises:
            Conflict: as for `write`, or somebody else changed the file meanwhile.
        """
        ...

    async def update_all(
        self, paths: Sequence[CanonicalPath], change: Callable[[Contents], Sequence[FileChange]]
    ) -> Mapping[CanonicalPath, Written]:
        """Create, replace and delete files as `change` returns for their contents: all of them or none.

        Every changed file is one of `paths`. Each replaces its target in one step; if one fails, the earlier
        ones are undone. Only a machine that stops midway leaves some changed, with their old content in
        backup files in the same folder.

        Raises:
            Conflict: somebody else changed a file meanwhile, or what was done could not be taken back; the
                text says which.
        """
        ...

    async def make_folder(self, path: CanonicalPath) -> bool:
        """Make a folder, with its parents. False when it was there.

        Raises:
            Conflict: something else has the name.
        """
        ...

    async def folders(self, query: FolderQuery) -> Mapping[str, FolderContent]:
        """What a folder and those below it hold, by their path below it; `.` is the folder itself.

        What a rule hides is left out and not counted.
        """
        ...
