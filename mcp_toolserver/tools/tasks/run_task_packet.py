"""Put a task on the board from a packet that says all its agent has to know: objective, scope, policies and
the tests that decide whether it is done. An agent runs it in the background with at most your rights now;
TaskOutput waits for its end.
"""

from typing import Any

from mcp_toolserver import tool as t
from mcp_toolserver.text.board import headline, packet_errors, packet_prompt, task_line
from mcp_toolserver.tools.tasks.task_record import TaskRecord, record_of

_MOST = 4_000


class RunTaskPacket(t.Args):
    objective: str = t.Field(max_length=_MOST, description="What has to be achieved")
    scope: str = t.Field(max_length=_MOST, description="workspace, module, single_file or custom")
    repo: str = t.Field(max_length=_MOST, description="Repository to work in")
    branch_policy: str = t.Field(max_length=_MOST, description="Which branch to use")
    acceptance_tests: tuple[str, ...] = t.Field(
        strict=False, max_length=50, description="Commands or checks that have to succeed"
    )
    commit_policy: str = t.Field(max_length=_MOST, description="When to commit, if at all")
    reporting_contract: str = t.Field(max_length=_MOST, description="What to report at the end")
    escalation_policy: str = t.Field(max_length=_MOST, description="When to stop and ask")
    scope_path: t.WorkspacePath = t.Field(
        default=t.ROOT, description="The module or file; required with those scopes"
    )

    @t.model_validator(mode="before")
    @classmethod
    def _complete(cls, sent: Any) -> Any:
        if errors := packet_errors(sent):
            raise ValueError("; ".join(errors))
        return sent


async def run(args: RunTaskPacket, rt: t.Runtime) -> t.Output:
    packet = args.model_dump(mode="json")
    prompt = packet_prompt(packet)
    made = await rt.tasks.create(t.NewTask(subject=headline(args.objective), prompt=prompt))
    return t.Output(f"Task created: {task_line(made.summary)}", data=record_of(made))


TOOL = t.ToolSpec(
    name="RunTaskPacket",
    title="Run task packet",
    args=RunTaskPacket,
    run=run,
    needs=frozenset({t.Capability.TASKS, t.Capability.TASK_RUNS, t.Capability.AGENTS}),
    subjects=lambda args: (args.objective, args.scope_path),
    output=TaskRecord,
)
