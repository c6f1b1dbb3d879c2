"""Gives agents git worktrees of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.errors import Denied, Unavailable
from mcp_toolserver.policy.rules import Request

if TYPE_CHECKING:
    from mcp_toolserver.capabilities.git import Worktree
    from mcp_toolserver.runtime.host_services import ServiceRequest
    from mcp_toolserver.runtime.providers import ProviderContext
    from mcp_toolserver.runtime.worktrees.worktrees import CallWorktrees

_TOOL = "EnterWorktree"
"""The tool whose rules decide whether a call may create worktrees."""


@dataclass(frozen=True, kw_only=True)
class Isolation:
    """The worktree of one agent."""

    worktrees: CallWorktrees
    worktree: Worktree
    agent: str

    @property
    def path(self) -> str:
        """The absolute path of the folder that the agent works in."""
        return self.worktree.path

    async def end(self) -> str:
        """Remove the worktree of the agent, which has ended, if it has no work in it; otherwise say where it
        is."""
        kept = await self.worktrees.end_isolation(self.agent, self.worktree)
        if kept is None:
            return ""
        return (
            f"its work is in the worktree {kept.path}, branch {kept.branch}; ExitWorktree with the id "
            f"{kept.id} removes it"
        )


async def isolated(context: ProviderContext, request: ServiceRequest, agent: str) -> Isolation:
    """Create a worktree for the agent with this handle.

    Raises:
        Denied: the caller may not create worktrees.
        Unavailable: there are no worktrees here.
        ToolError: see `CallWorktrees.isolate`.
    """
    if (why := Capability.WORKTREES.unavailable(context.facts)) is not None:
        raise Unavailable(f"An agent cannot have a worktree here: {why.text}.")
    _check_rights(request)
    # Most agents need none.
    from mcp_toolserver.runtime.worktrees.worktrees import CallWorktrees

    worktrees = context.service(Capability.WORKTREES)(replace(request, capability=Capability.WORKTREES))
    assert isinstance(worktrees, CallWorktrees)
    return Isolation(worktrees=worktrees, worktree=await worktrees.isolate(agent, agent), agent=agent)


def _check_rights(request: ServiceRequest) -> None:
    """Raises: Denied: the policy does not let this call create a worktree without a question."""
    rights, policy = request.calls.rights, request.calls.dispatcher.policy
    if rights.confined_to is not None:
        policy = policy.under(rights.confined_to)
    verdict = policy.narrowed(rights.narrowings).decide(
        Request(
            tool=_TOOL,
            level=Permission.WORKSPACE_WRITE,
            subjects=(),
            needs=frozenset({Capability.WORKTREES}),
        )
    )
    if verdict.action != "run":
        raise Denied(f"An agent cannot have a worktree for this call. {verdict.reason}")
