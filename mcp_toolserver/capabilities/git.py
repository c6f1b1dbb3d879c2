"""Reading, changing and cloning git repositories inside the roots, and their linked work trees."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mcp_toolserver.capabilities.files import CanonicalPath


@dataclass(frozen=True, kw_only=True)
class GitChange:
    """A path that differs from the last commit."""

    path: str
    staged: str
    """The change in the index, a letter of `git status --short`; `.` for none, `?` for an untracked file."""
    unstaged: str
    """The same for the file in the work tree."""
    origin: str
    """Empty, or the previous path of a renamed or copied file."""


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


DiffForm = Literal["patch", "stat"]


ShowForm = Literal["patch", "stat", "metadata"]


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


FileLetter = str
"""What became of a file, a letter of `git diff --name-status`: A, M, D or T."""


@dataclass(frozen=True, kw_only=True)
class CommitQuery:
    """What to commit."""

    paths: Sequence[CanonicalPath]
    """Files, and folders with all that changed in them; none only with `amend`."""
    message: str
    """Empty only with `amend`, which then keeps the message."""
    amend: bool = False
    """Replace the last commit, which must be the author's own and in no remote-tracking branch."""


@dataclass(frozen=True, kw_only=True)
class Committed:
    """A new commit."""

    id: str
    branch: str
    """Empty when no branch is checked out."""
    author: str
    """`Name <email>`."""
    subject: str
    files: tuple[tuple[FileLetter, str], ...]
    """The visible files of the commit, with what became of them."""
    left_out: int = 0
    """Changed files that a rule of the operator keeps out of the commit."""
    nested: int = 0
    """Changed repositories inside of this one, which are left out too."""
    unsigned: bool = False
    """Whether the configuration asks for a signature, which the commit lacks."""


@dataclass(frozen=True, kw_only=True)
class BranchQuery:
    """A branch to create or to switch to."""

    path: CanonicalPath
    """A path in the repository."""
    name: str
    create: bool = False
    start: str = ""
    """The commit that a new branch starts from; empty for HEAD."""
    switch: bool = True


@dataclass(frozen=True, kw_only=True)
class BranchChange:
    """What was done with a branch."""

    name: str
    commit: str
    created: bool
    switched: bool
    before: str
    """The branch that was checked out before; a commit id if there was none."""
    files: tuple[tuple[FileLetter, str], ...] = ()
    """The files of the work tree that changed."""


@dataclass(frozen=True, kw_only=True)
class Cloned:
    """The result of a clone."""

    commit: str = ""
    """The checked-out commit; empty for a repository without commits."""
    branch: str = ""
    """The checked-out branch; empty if HEAD is detached."""
    files: int = 0
    size: int = 0
    """Bytes of the files."""
    notes: tuple[str, ...] = ()
    """Additional information for the caller, as sentences."""


WorktreeAction = Literal["keep", "remove", "merge", "apply"]


@dataclass(frozen=True, kw_only=True)
class Worktree:
    """A linked work tree with a branch of its own."""

    id: str
    """The handle, bound to its owner."""
    name: str
    path: str
    """Absolute."""
    branch: str
    base: str
    """The id of the commit that the branch started from."""


@dataclass(frozen=True, kw_only=True)
class EnteredWorktree:
    """What was entered."""

    worktree: Worktree
    created: bool
    files: int = 0
    """Files that were written."""
    left_out: tuple[str, ...] = ()
    """Files of the commit that were not written: protected, hidden by a rule, or stored through a filter."""


@dataclass(frozen=True, kw_only=True)
class ExitedWorktree:
    """What became of a worktree."""

    worktree: Worktree
    removed: bool
    was_missing: bool = False
    """Whether its folder had been deleted by somebody else."""
    branch_kept: bool = True
    discarded: tuple[str, ...] = ()
    """What was discarded, in sentences."""


@dataclass(frozen=True, kw_only=True)
class MergedWorktree:
    """What was taken over from a worktree."""

    worktree: Worktree
    into: str
    """The branch that was merged into."""
    place: str
    """The absolute path of the folder in which it is checked out."""
    commits: int
    """Those that it did not have."""
    commit: str = ""
    """What it is at now; empty if nothing was committed."""
    files: tuple[tuple[str, str], ...] = ()
    """Those that were written, each with A, D or M."""
