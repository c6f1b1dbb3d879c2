"""Reading git repositories inside the roots."""

from dataclasses import dataclass
from typing import Literal, Protocol

from mcp_toolserver.capabilities.files import CanonicalPath


@dataclass(frozen=True, kw_only=True)
class GitChange:
    """A path that is not as the last commit has it."""

    path: str
    staged: str
    """A letter as `git status --short` has it: what the index holds; `.` for no change, `?` for untracked."""
    unstaged: str
    """The same for the file itself."""
    origin: str = ""
    """What it was called before, when it was renamed or copied."""


@dataclass(frozen=True, kw_only=True)
class GitState:
    """The branch, and what is not committed."""

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
    """False when there is more than could be read."""


@dataclass(frozen=True, kw_only=True)
class GitCommit:
    """A commit."""

    id: str
    author: str
    email: str
    date: str
    """When it was written, in ISO 8601."""
    subject: str
    body: str = ""


@dataclass(frozen=True, kw_only=True)
class HistoryQuery:
    """Which commits to list."""

    path: CanonicalPath
    """In the repository; less than all of it lists only commits that touch it."""
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
    """What git prints for people."""

    text: str
    folder: str
    """What the names in it are relative to."""
    form: Literal["patch", "stat", "metadata", "file", "folder"]
    """What it is: `stat` also in the place of a patch that was too long."""
    left_out: int = 0
    """Files that a rule of the operator hides."""
    complete: bool = True


@dataclass(frozen=True, kw_only=True)
class BlameQuery:
    """Which lines to ask about."""

    path: CanonicalPath
    revision: str = ""
    """Empty for the file as it is now."""
    first: int
    last: int


@dataclass(frozen=True, kw_only=True)
class GitLine:
    """A line of a file, and who wrote it."""

    number: int
    text: str
    commit: str
    """All zeros for what is not committed."""
    author: str
    date: str
    """The day, in ISO 8601."""


@dataclass(frozen=True, kw_only=True)
class GitBranch:
    """A branch, here or of a remote."""

    name: str
    commit: str
    date: str
    upstream: str = ""
    current: bool = False


@dataclass(frozen=True, kw_only=True)
class GitOverview:
    """A repository at a glance."""

    folder: str
    branches: tuple[GitBranch, ...]
    """Those with the newest commits first."""
    all_branches: int
    tags: int
    remotes: tuple[tuple[str, str], ...]
    """Names and addresses, credentials blanked."""
    commits: tuple[GitCommit, ...]
    """The last ones."""
    all_commits: int
    files: tuple[str, ...]
    """What git follows, relative to `folder`."""
    complete: bool = True
    """False when there are more files than could be read."""


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
        """At most the lines asked for; fewer where the file ends."""
        ...

    async def overview(self, path: CanonicalPath) -> GitOverview: ...
