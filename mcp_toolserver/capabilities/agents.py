"""Agents: language models that work on tasks with the tools of this server, alone or as a team."""

from dataclasses import dataclass
from typing import Literal

from mcp_toolserver.capabilities.permissions import Permission

AgentStatus = Literal["running", "finished", "limited", "failed", "stopped", "lost"]
"""`limited`: it reached a limit; `failed`: its model did not answer; `lost`: it ended with its server."""

FIRST_TYPE = "general-purpose"
"""The type of an agent for which the caller names none."""


@dataclass(frozen=True, kw_only=True)
class AgentTask:
    """What an agent is to do, and what the caller asks for it. Nothing here raises its rights."""

    description: str
    prompt: str
    type: str = ""
    """Empty for `FIRST_TYPE`, or for the type of the agent to resume."""
    name: str = ""
    model: str = ""
    """Empty for the model of the type."""
    max_turns: int | None = None
    """Lowers the operator's limit."""
    background: bool = False
    resume: str = ""
    """The handle of the agent to continue; empty for a new one."""
    in_worktree: bool = False
    """Whether it works in a git worktree of its own."""
    ceiling: Permission = Permission.DANGER_FULL_ACCESS
    team: str = ""
    """The name of the team that it is a member of; empty for none."""


@dataclass(frozen=True, kw_only=True)
class AgentState:
    """An agent, running or ended."""

    handle: str
    name: str = ""
    type: str
    description: str
    status: AgentStatus = "running"
    detail: str = ""
    """The limit that it reached, or why it failed or was stopped."""
    text: str = ""
    """What it said last: its result once it has finished."""
    step: str = ""
    """What it does now; empty once it has ended."""
    turns: int = 0
    """Answers of its model, without summaries."""
    tokens: int = 0
    """Of its model, with those of the agents that it started."""
    cost: float | None = 0.0
    """US dollars, likewise; None if it is unknown."""
    seconds: float = 0.0
    """How long it has run, over all its runs."""
    notes: tuple[str, ...] = ()
    """What its reader should know as well: sentences."""
    changed: tuple[str, ...] = ()
    """Files that it, and agents that it started, changed with tools for files; relative to its first root."""


LEADER = "leader"
"""What agents call the one that started them."""

EVERYBODY = "*"


@dataclass(frozen=True, kw_only=True)
class Team:
    """Agents that were started together."""

    id: str
    """The handle, bound to its owner."""
    name: str
    members: tuple[AgentState, ...]
