"""Reading git repositories inside the roots."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from mcp_toolserver.capabilities.files import CanonicalPath


@dataclass(frozen=True, kw_only=True)
class GitChange:
    """A path that differs from the last commit."""

    path: str
    staged: str
    """The change in the index, a letter of `git status --short`; `.` for none, `?` for an untracked file."""
    unstaged: str
    """The same for the file in the work tree."""
    origin: str = ""
    """The previous path of a renamed or copied file."""


@dataclass(frozen=True, kw_only=True)
class GitState:
    """The current branch and the uncommitted changes."""

    branch: str
    """Empty when no branch is checked out."""
    head: str
    """The commit; empty before the first."""
    upstream: str = ""
    ahead: int = 0
    behind: int = 0
    changes: tuple[GitChange, ...] = ()
    left_out: int = 0
    """Changes that a rule of the operator hides."""
    complete: bool = True
    """Whether all changes were read."""


@dataclass(frozen=True, kw_only=True)
class GitCommit:
    """A commit."""

    id: str
    author: str
    email: str
    date: str
    """The author date in ISO 8601."""
    subject: str
    body: str = ""


@dataclass(frozen=True, kw_only=True)
class HistoryQuery:
    """Which commits to list."""

    path: CanonicalPath
    """A path in the repository; only commits that change it are listed."""
    revision: str = ""
    """A commit or a range; empty for HEAD."""
    author: str = ""
    since: str = ""
    until: str = ""
    count: int
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class GitHistory:
    """Commits, newest first."""

    commits: tuple[GitCommit, ...]
    more: bool


DiffForm = Literal["patch", "stat"]


@dataclass(frozen=True, kw_only=True)
class DiffQuery:
    """Which changes to show."""

    path: CanonicalPath
    revision: str = ""
    """A commit to compare the files with, or a range of two; empty for the index."""
    staged: bool = False
    """Compare the index with the commit, which is HEAD unless given."""
    form: DiffForm = "patch"


ShowForm = Literal["patch", "stat", "metadata"]


@dataclass(frozen=True, kw_only=True)
class ShowQuery:
    """Which commit to show; of a `path` that is no folder, its content there."""

    path: CanonicalPath
    revision: str
    form: ShowForm = "patch"


@dataclass(frozen=True, kw_only=True)
class GitText:
    """Output of git in its own format."""

    text: str
    folder: str
    """The folder that the paths in `text` are relative to."""
    form: Literal["patch", "stat", "metadata", "file", "folder"]
    """The form of `text`; `stat` also replaces a patch that was too long."""
    left_out: int = 0
    """Files that a rule of the operator hides."""
    complete: bool = True


@dataclass(frozen=True, kw_only=True)
class BlameQuery:
    """Which lines of a file to attribute."""

    path: CanonicalPath
    revision: str = ""
    """A commit; empty for the file in the work tree."""
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class GitLine:
    """A line of a file, with the commit that last changed it."""

    number: int
    text: str
    commit: str
    """The commit id; all zeros for an uncommitted line."""
    author: str
    date: str
    """The day, in ISO 8601."""


@dataclass(frozen=True, kw_only=True)
class VersionQuery:
    """Which version of files to read."""

    paths: Sequence[CanonicalPath]
    revision: str
    """A commit; ignored if `staged`."""
    staged: bool = False
    """Read what the index holds."""


@dataclass(frozen=True, kw_only=True)
class FileVersion:
    """A file as git would check it out, but without the filters of the configuration."""

    path: CanonicalPath
    content: bytes
    executable: bool


@dataclass(frozen=True, kw_only=True)
class GitBranch:
    """A local or remote branch."""

    name: str
    commit: str
    date: str
    upstream: str = ""
    current: bool = False


@dataclass(frozen=True, kw_only=True)
class GitOverview:
    """An overview of a repository."""

    folder: str
    branches: tuple[GitBranch, ...]
    """Branches, those with the newest commits first."""
    all_branches: int
    tags: int
    remotes: tuple[tuple[str, str], ...]
    """Names and addresses, without credentials."""
    commits: tuple[GitCommit, ...]
    """The newest commits."""
    all_commits: int
    files: tuple[str, ...]
    """Tracked files, relative to `folder`."""
    complete: bool = True
    """Whether `files` has all tracked files."""


class Git(Protocol):
    """Reading git repositories inside the roots. None of a repository's programs runs, and nothing changes.

    All methods raise `NotFound` (no repository, or no such file), `Denied` (the repository lies outside the
    roots or is set up to lead git astray; a rule hides the path), `InvalidInput` (no such commit), `TimedOut`
    and `Unavailable`. Names and contents that a rule of the operator hides are left out.
    """

    async def status(self, path: CanonicalPath) -> GitState: ...
    async def history(self, query: HistoryQuery) -> GitHistory: ...
    async def diff(self, query: DiffQuery) -> GitText: ...
    async def show(self, query: ShowQuery) -> GitText: ...
    async def blame(self, query: BlameQuery) -> tuple[GitLine, ...]:
        """Return the requested lines; fewer if the file ends before."""
        ...

    async def versions(self, query: VersionQuery) -> tuple[FileVersion, ...]:
        """Return the files of one repository in a commit or in the index.

        Raises:
            InvalidInput: one of them is no regular file there, or is stored through a filter.
        """
        ...

    async def overview(self, path: CanonicalPath) -> GitOverview: ...
