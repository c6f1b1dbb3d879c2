"""Linked work trees of git repositories inside the roots, each entered by one session."""

from dataclasses import dataclass
from typing import Literal, Protocol

from mcp_toolserver.capabilities.files import CanonicalPath

WorktreeAction = Literal["keep", "remove"]


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
class WorktreeQuery:
    """A worktree to enter."""

    path: CanonicalPath
    """A path in the repository."""
    name: str
    base: str = ""
    """The commit that a new branch starts from; empty for HEAD."""


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
class ExitQuery:
    """How to leave a worktree."""

    id: str
    action: WorktreeAction = "keep"
    discard_changes: bool = False


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


class Worktrees(Protocol):
    """The worktrees of the caller. No program of a repository or user runs, and the network is not used.

    All methods raise what those of `GitChanges` raise.
    """

    async def enter(self, query: WorktreeQuery) -> EnteredWorktree:
        """Create a worktree, or find one of the caller again, and make it the first root of the caller.

        Raises:
            Conflict: the caller is in a worktree, or the name or branch is taken.
            InvalidInput: the name or the commit cannot be used, or the limit of worktrees is reached.
        """
        ...

    async def exit(self, query: ExitQuery) -> ExitedWorktree:
        """Leave a worktree, and remove it if asked.

        Raises:
            NotFound: the caller has no such worktree.
            Conflict: it would lose work, or somebody else works in it.
        """
        ...
