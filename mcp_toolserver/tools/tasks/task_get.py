"""Show a task of the board: status, texts, dependencies and messages. TaskOutput shows its output."""

from mcp_toolserver.tool import Args, Capability, Field, Output, Permission, Runtime, ToolSpec
from mcp_toolserver.tools.tasks.task_record import TaskId, TaskRecord, detail_text, record_of


class TaskGet(Args):
    task_id: TaskId = Field(description="Id of the task")


async def run(args: TaskGet, rt: Runtime) -> Output:
    found = await rt.tasks.get(args.task_id)
    return Output(detail_text(found), data=record_of(found))


TOOL = ToolSpec(
    name="TaskGet",
    title="Show task",
    description=__doc__ or "",
    args=TaskGet,
    run=run,
    permission=Permission.READ_ONLY,
    needs=frozenset({Capability.TASKS}),
    kind="other",
    subjects=lambda args: (args.task_id,),
    idempotent=True,
    output=TaskRecord,
)
