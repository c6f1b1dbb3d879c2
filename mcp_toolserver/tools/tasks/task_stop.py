"""Stop a background job: kill it and every process it started. TaskOutput can still read its output. To check
on a job or wait for its end, use TaskOutput instead. A foreground command is killed when its call is
cancelled.
"""

from mcp_toolserver.text.shell.command_output import ending, noted
from mcp_toolserver.tool import (
    Alias,
    Args,
    Capability,
    Field,
    Output,
    Permission,
    Profile,
    Runtime,
    ToolSpec,
)


class TaskStop(Args):
    task_id: str = Field(min_length=1, max_length=200, description="Id of a command, agent or task")


async def run(args: TaskStop, rt: Runtime) -> Output:
    state = await rt.jobs.stop(args.task_id)
    said = f"{args.task_id}: {ending(state)}; {state.total} bytes of output."
    return Output(noted(said, state.notes))


TOOL = ToolSpec(
    name="TaskStop",
    title="Stop background job",
    description=__doc__ or "",
    args=TaskStop,
    run=run,
    permission=Permission.DANGER_FULL_ACCESS,
    needs=frozenset({Capability.JOBS, Capability.TASK_RUNS}),
    kind="other",
    subjects=lambda args: (args.task_id,),
    destructive=True,
    idempotent=True,
    aliases=(
        Alias("KillShell"),
        Alias("KillBash"),
    ),
    profile=Profile.DEFAULT,
)
