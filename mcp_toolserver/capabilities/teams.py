"""Teams: agents that work at the same time and send each other messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mcp_toolserver.capabilities.agents import AgentState, AgentTask

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


class Teams(Protocol):
    """The teams and the running agents of the caller."""

    async def send(self, to: str, message: str) -> tuple[str, ...]:
        """Send a message to an agent by its name or handle, to `LEADER` or to `EVERYBODY`; each reads it with
        its next turn. An agent reaches those that were started together with it, those that it started,
        and its leader.

        Returns:
            The names of those who get it.

        Raises:
            NotFound: nobody within reach has this name.
            Conflict: the agent has ended, or has too many unread messages.
        """
        ...

    async def create(self, name: str, members: Sequence[AgentTask]) -> Team:
        """Start agents in the background; all or none.

        Raises:
            Conflict: a name is given twice or taken.
            ToolError: as `Agents.run`.
        """
        ...

    async def delete(self, team: str) -> Team:
        """Stop the members, by the id or name of their team, and all that they started.

        Raises:
            NotFound: the caller has no such team; it may have been deleted.
        """
        ...
