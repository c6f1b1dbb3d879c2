"""Counts what an agent spends, and says which limit it has reached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp_toolserver.capabilities.model import ModelTurn


@dataclass(frozen=True, kw_only=True)
class AgentLimits:
    turns: int = 50
    """Answers of the model in one run."""
    tokens: int = 2_000_000
    """Tokens in and out over all turns, those of the agents that it starts included."""
    seconds: float = 1_800.0
    """Of one run."""
    cost: float | None = None
    """US dollars, counted like tokens; None for no limit."""
    running: int = 8
    """Agents that run at the same time, those that other agents started included; more of them wait."""
    foreground_seconds: float | None = None
    """How long a call waits for the end of an agent where the client does not say how long it waits."""


class Spending:
    """What an agent has spent. What it spends counts for the agents that it works for too."""

    def __init__(
        self, limits: AgentLimits, most_turns: int | None = None, parent: Spending | None = None
    ) -> None:
        self._limits = limits
        self._most_turns = limits.turns if most_turns is None else min(most_turns, limits.turns)
        self.payers: tuple[Spending, ...] = (self, *(parent.payers if parent else ()))
        """This one, and those of the agents that this one works for, nearest first."""
        self.turns = 0
        self.tokens = 0
        self.cost: float | None = 0.0

    def add(self, turn: ModelTurn, *, is_summary: bool = False) -> None:
        """Count a turn of the agent's own model; a summary counts as tokens and cost only."""
        self.turns += not is_summary
        for payer in self.payers:
            payer.tokens += turn.input_tokens + turn.output_tokens
            payer.cost = None if turn.cost is None or payer.cost is None else payer.cost + turn.cost

    def reached(self) -> str | None:
        """The limit that the agent, or one that it works for, has reached; None if there is none."""
        if self.turns >= self._most_turns:
            return f"it reached the limit of {self._most_turns} turns"
        return next((why for payer in self.payers if (why := payer.overspent())), None)

    def overspent(self) -> str | None:
        limits = self._limits
        if self.tokens >= limits.tokens:
            return f"it reached the limit of {limits.tokens:,} tokens"
        if limits.cost is None:
            return None
        if self.cost is None:
            return f"its cost is unknown, and the limit is ${limits.cost:g}"
        return f"it reached the limit of ${limits.cost:g}" if self.cost >= limits.cost else None
