"""Stop a background job: kill it and every process it started. TaskOutput can still read its output. To check
on a job or wait for its end, use TaskOutput instead. A foreground command is killed when its call is
cancelled.
"""

from mcp_toolserver import tool as t
from mcp_toolserver.text.shell.command_output import ending, noted


class TaskStop(t.Args):
    task_id: str = t.Field(min_length=1, max_length=200, description="Id of a command, agent or task")
    reason: str = t.Field(default="", max_length=500, description="Why; kept with a task of the board")


async def run(args: TaskStop, rt: t.Runtime) -> t.Output:
    state = await rt.jobs.stop(args.task_id, args.reason)
    said = f"{args.task_id}: {ending(state)}; {state.total} bytes of output."
    return t.Output(noted(said, state.notes))


TOOL = t.ToolSpec(
    name="TaskStop",
    title="Stop background job",
    args=TaskStop,
    run=run,
    needs=frozenset({t.Capability.JOBS, t.Capability.TASK_RUNS}),
    subjects=lambda args: (args.task_id,),
    destructive=True,
    idempotent=True,
    aliases=(
        t.Alias("KillShell"),
        t.Alias("KillBash"),
    ),
    profile=t.Profile.DEFAULT,
)
