"""Gives agents git worktrees of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.errors import Unavailable
from mcp_toolserver.policy.rules import Request

if TYPE_CHECKING:
    from mcp_toolserver.runtime.host_services import ServiceRequest
    from mcp_toolserver.runtime.providers import ProviderContext

_TOOL = "EnterWorktree"
"""The tool whose rules decide whether a call may create worktrees."""


@dataclass(frozen=True)
class Isolation:
    """The worktree of one agent."""

    path: str
    """The absolute path of the folder that the agent works in."""
    end: Callable[[], Awaitable[str]]
    """Removes the worktree of the agent, which has ended, if it has no work in it; otherwise says where it
    is."""


async def isolated(context: ProviderContext, request: ServiceRequest, agent: str) -> Isolation:
    """Create a worktree for the agent with this handle, if the caller may create worktrees.

    Raises:
        Denied: the caller may not create worktrees.
        Unavailable: there are no worktrees here.
        ToolError: see `CallWorktrees.isolate`.
    """
    if (why := Capability.WORKTREES.unavailable(context.facts)) is not None:
        raise Unavailable(f"An agent cannot have a worktree here: {why.text}.")
    needed = Request(
        tool=_TOOL,
        level=Permission.WORKSPACE_WRITE,
        subjects=(),
        needs=frozenset({Capability.WORKTREES}),
    )
    request.calls.require(needed, "An agent cannot have a worktree for this call.")
    # Most agents need none.
    from mcp_toolserver.runtime.worktrees.worktrees import CallWorktrees

    worktrees = request.host.providers[Capability.WORKTREES](
        replace(request, capability=Capability.WORKTREES)
    )
    assert isinstance(worktrees, CallWorktrees)
    worktree = await worktrees.isolate(agent, agent)

    async def end() -> str:
        kept = await worktrees.end_isolation(agent, worktree)
        if kept is None:
            return ""
        return (
            f"its work is in the worktree {kept.path}, branch {kept.branch}; ExitWorktree with the id "
            f"{kept.id} removes it"
        )

    return Isolation(worktree.path, end)
