"""Agents of tasks and schedules: nobody reads what they say before others go on, so they state an outcome."""

import re
from dataclasses import replace
from typing import Any

from mcp_toolserver.capabilities.agents import AgentTask
from mcp_toolserver.capabilities.call_scope import ROOM
from mcp_toolserver.errors import Failed
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


async def _run(args: Any, rt: Runtime) -> Output:
    """Stands for the function of `Agent`.

    Raises:
        Failed: the agent did not finish, or does not state that its work is done; the text is what it said.
        ToolError: as `CallAgents.run`.
    """
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
    if state.status != "finished":
        raise Failed(result_text(state))
    return Output(result_text(state))


DEFERRED = OutputOverride(run=_run, output_bytes=ROOM.bytes)
"""For calls of `Agent` by tasks and schedules."""
