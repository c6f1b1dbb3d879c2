"""Changes repositories with git."""

from dataclasses import dataclass

from mcp_toolserver.capabilities.git import BranchChange, BranchQuery, CommitQuery, Committed
from mcp_toolserver.runtime.git.changing import ChangeAccess
from mcp_toolserver.runtime.git.commit import commit
from mcp_toolserver.runtime.git.switch import change_branch


@dataclass(frozen=True, kw_only=True)
class GitWriter:
    """Changing git repositories inside the roots. No program of a repository or user runs, and the network is
    not used.

    All methods raise what those of `GitReader` raise, and `Conflict` where the state of the repository
    or of its files is in the way.
    """

    access: ChangeAccess

    async def commit(self, query: CommitQuery) -> Committed:
        return await commit(self.access, query)

    async def branch(self, query: BranchQuery) -> BranchChange:
        """Create a branch, or switch to one, or both.

        A switch writes the files that differ, all of them or none, and only where tools may write. It loses
        no uncommitted change.
        """
        return await change_branch(self.access, query)
