"""Agents of tasks and schedules: nobody reads what they say before others go on, so they state an outcome."""

import re
from dataclasses import replace
from typing import Any

from mcp_toolserver.capabilities.agents import AgentState, AgentTask
from mcp_toolserver.capabilities.call_scope import ROOM
from mcp_toolserver.pipeline.call import OutputOverride
from mcp_toolserver.text.agents.types import result_text
from mcp_toolserver.tool_spec import Output, Runtime

_LINE = (
    "a line of its own: `OUTCOME: done` if all that was asked is done, `OUTCOME: failed` if it is not, or "
    "`OUTCOME: blocked` if it needs something that you cannot get"
)
_STATED = re.compile(r"^\W*outcome\W+(done|failed|blocked)\W*$", re.IGNORECASE | re.MULTILINE)


def stated_outcome(text: str) -> str:
    """The outcome that the text states last: done, failed or blocked; else unknown."""
    found = _STATED.findall(text)
    return found[-1].lower() if found else "unknown"


class Deferred:
    """One call of `Agent` by a task or a schedule, and how its agent ended."""

    def __init__(self) -> None:
        self.state: AgentState | None = None
        """Finished only if the agent stated that its work is done; None before the end, and if it did not
        start."""
        self.override = OutputOverride(run=self._run, output_bytes=ROOM.bytes)

    async def _run(self, args: Any, rt: Runtime) -> Output:
        """Stands for the function of `Agent`. Raises: ToolError: as `CallAgents.run`."""
        asked = f"{args.prompt}\n\nEnd your last answer with {_LINE}."
        task = AgentTask(description=args.description, prompt=asked)
        state = await rt.agents.run(task, rt.report)
        if state.status == "finished" and stated_outcome(state.text) == "unknown":
            again = replace(task, prompt=f"Answer with {_LINE}.", resume=state.handle)
            more = await rt.agents.run(again, rt.report)
            state = replace(more, text=f"{state.text}\n{more.text}")
        outcome = stated_outcome(state.text)
        if state.status == "finished" and outcome != "done":
            state = replace(state, status="failed", detail=f"it states the outcome {outcome}")
        self.state = state
        return Output(result_text(state))
