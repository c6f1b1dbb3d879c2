"""Gives agents git worktrees of their own."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.errors import InvalidInput, Unavailable
from mcp_toolserver.policy.rules import Request
from mcp_toolserver.runtime.files.root import WORKTREES
from mcp_toolserver.stores.worktrees import StoredWorktrees

if TYPE_CHECKING:
    from mcp_toolserver.capabilities.agents import AgentTask
    from mcp_toolserver.runtime.host_services import ServiceRequest
    from mcp_toolserver.runtime.providers import ProviderContext
    from mcp_toolserver.stores.agents import AgentRecord
    from mcp_toolserver.text.agents.types import AgentType

_TOOL = "EnterWorktree"
"""The tool whose rules decide whether a call may create worktrees."""

_NOTE = "its work is in the worktree "


@dataclass(frozen=True)
class Isolation:
    """The worktree of one agent."""

    path: str
    """The absolute path of the folder that the agent works in."""
    end: Callable[[], Awaitable[str]]
    """Removes the worktree of the agent, which has ended, if it has no work in it; otherwise says where it
    is."""


async def isolated(
    context: ProviderContext, request: ServiceRequest, agent: str, task: AgentTask, kind: AgentType
) -> Isolation | None:
    """The worktree of the agent with this handle, a new one or that of the agent to resume; None if it works
    in the folders of its caller.

    Raises:
        InvalidInput: the agent to resume works in the folders of its caller.
        Denied: the caller may not create worktrees.
        Unavailable: there are no worktrees here.
        ToolError: see `CallWorktrees.isolate`.
    """
    owner = request.scope.owner
    stored = StoredWorktrees(context.database)
    had_one = bool(task.resume) and await stored.of_agent(agent, owner) is not None
    if task.resume and task.in_worktree and not had_one:
        raise InvalidInput(f"{agent} does not work in a worktree of its own; leave isolation out.")
    is_asked = task.in_worktree or (kind.in_worktree and not task.resume)
    if not is_asked and not had_one:
        # Calls of its agents start where those of the caller start.
        if entered := context.worktrees.get(owner):
            context.worktrees[agent] = entered
        return None
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
    worktree = await worktrees.isolate(agent)

    async def end() -> str:
        work = await worktrees.end_isolation(agent, worktree)
        return work and _note(worktree.path, worktree.branch, worktree.id, f": {work}")

    return Isolation(worktree.path, end)


async def with_worktree(context: ProviderContext, record: AgentRecord) -> AgentRecord:
    """The record of an agent; one that ended with its server names the worktree that it left."""
    if record.status != "lost" or without_worktree(record.notes) != record.notes:
        return record
    left = await StoredWorktrees(context.database).of_agent(record.handle, record.owner)
    if left is None or not left.git_dir:
        return record
    path = f"{os.path.dirname(left.common_dir)}/{WORKTREES}/{left.name}"
    return replace(record, notes=(*record.notes, _note(path, left.branch, left.handle)))


def without_worktree(notes: tuple[str, ...]) -> tuple[str, ...]:
    """The notes on an agent without what an earlier run said of its worktree."""
    return tuple(note for note in notes if not note.startswith(_NOTE))


def _note(path: str, branch: str, handle: str, work: str = "") -> str:
    return (
        f"{_NOTE}{path}, branch {branch}{work}; ExitWorktree with the id {handle} takes "
        "it over (action merge or apply) or deletes it (remove)"
    )
