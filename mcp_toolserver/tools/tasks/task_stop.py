"""End a background command: kill it with everything it started. What it printed can still be read with
TaskOutput. To see how a command is doing, or to wait for its end, use TaskOutput instead. A command in the
foreground needs no stop: cancelling its call kills it.
"""

from mcp_toolserver.text.job import ending
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
    task_id: str = Field(min_length=1, max_length=200, description="Id that bash returned")


async def run(args: TaskStop, rt: Runtime) -> Output:
    state = await rt.jobs.stop(args.task_id)
    return Output(f"{args.task_id}: {ending(state)}; {state.total} bytes of output.")


TOOL = ToolSpec(
    name="TaskStop",
    description=__doc__ or "",
    args=TaskStop,
    run=run,
    permission=Permission.DANGER_FULL_ACCESS,
    needs=frozenset({Capability.PROCESS, Capability.JOBS}),
    kind="other",
    subjects=lambda args: (args.task_id,),
    destructive=True,
    idempotent=True,
    aliases=(
        Alias("TaskStop", {"id": "task_id", "handle": "task_id", "shell_id": "task_id"}),
        Alias("KillShell", {"shell_id": "task_id"}),
        Alias("KillBash", {"shell_id": "task_id"}),
    ),
    profile=Profile.DEFAULT,
)
