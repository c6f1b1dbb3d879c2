"""Changing git repositories inside the roots: commits and branches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mcp_toolserver.capabilities.files import CanonicalPath

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


class GitChanges(Protocol):
    """Changing git repositories inside the roots. No program of a repository or user runs, and the network is
    not used.

    All methods raise what those of `Git` raise, and `Conflict` where the state of the repository or of its
    files is in the way.
    """

    async def commit(self, query: CommitQuery) -> Committed: ...
    async def branch(self, query: BranchQuery) -> BranchChange:
        """Create a branch, or switch to one, or both.

        A switch writes the files that differ, all of them or none, and only where `Files` may write. It loses
        no uncommitted change.
        """
        ...
