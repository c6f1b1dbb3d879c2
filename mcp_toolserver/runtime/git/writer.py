"""Changes repositories with git."""

from dataclasses import dataclass

from mcp_toolserver.capabilities.git_changes import BranchChange, BranchQuery, CommitQuery, Committed
from mcp_toolserver.runtime.git.changing import ChangeAccess
from mcp_toolserver.runtime.git.commit import commit
from mcp_toolserver.runtime.git.switch import change_branch


@dataclass(frozen=True, kw_only=True)
class GitWriter:
    """Implements `capabilities.GitChanges`."""

    access: ChangeAccess

    async def commit(self, query: CommitQuery) -> Committed:
        """See `GitChanges.commit`."""
        return await commit(self.access, query)

    async def branch(self, query: BranchQuery) -> BranchChange:
        """See `GitChanges.branch`."""
        return await change_branch(self.access, query)
