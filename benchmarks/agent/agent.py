"""The calls of one task, and what they cost the model that makes them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.client import Client, Unanswered

Arguments = Mapping[str, Any]
PATIENCE = 180.0
"""Seconds for one answer. The longest call waits 60 s on purpose."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a task, or several, took."""

    calls: int = 0
    rejected: int = 0
    """Calls whose result was an error (`isError`)."""
    characters: int = 0
    """Arguments written by the model, as compact JSON, and text of results sent to it."""
    seconds: float = 0.0
    """Between request and answer; the model's own time is not in it."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            calls=self.calls + other.calls,
            rejected=self.rejected + other.rejected,
            characters=self.characters + other.characters,
            seconds=self.seconds + other.seconds,
        )


class Agent:
    """Calls the tools of one or more servers, each by the name under which a server lists it."""

    def __init__(self, clients: Sequence[Client]) -> None:
        self._by_tool: dict[str, Client] = {}
        self.list_size = 0
        """Characters of all lists of tools, as compact JSON."""
        self.usage = Usage()
        self.rejections: list[str] = []
        """Tool and start of the error text of each rejected call."""
        for client in clients:
            tools = client.request("tools/list", {}).result["tools"]
            self.list_size += _size(tools)
            self._by_tool.update({tool["name"]: client for tool in tools})

    def call(self, tool: str, arguments: Arguments) -> str:
        """Call a tool, count the call, and give the text of its result, also of a rejected call."""
        client = self._by_tool.get(tool)
        if client is None:
            raise Unanswered(f"no server lists a tool {tool}")
        answer = client.request("tools/call", {"name": tool, "arguments": arguments}, patience=PATIENCE)
        rejected = bool(answer.result.get("isError"))
        if rejected:
            self.rejections.append(f"{tool}: {answer.text[:200]}")
        self.usage += Usage(
            calls=1,
            rejected=int(rejected),
            characters=_size(arguments) + len(answer.text),
            seconds=answer.seconds,
        )
        return answer.text


def _size(value: object) -> int:
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False))
