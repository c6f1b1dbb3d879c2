"""Show a task of the board: status, texts, dependencies and messages. TaskOutput shows its output."""

from mcp_toolserver import tool as t
from mcp_toolserver.tools.tasks.task_record import TaskId, TaskRecord, detail_text, record_of


class TaskGet(t.Args):
    task_id: TaskId = t.Field(description="Id of the task")


async def run(args: TaskGet, rt: t.Runtime) -> t.Output:
    found = await rt.tasks.get(args.task_id)
    return t.Output(detail_text(found), data=record_of(found))


TOOL = t.ToolSpec(
    name="TaskGet",
    title="Show task",
    args=TaskGet,
    run=run,
    needs=frozenset({t.Capability.TASKS}),
    subjects=lambda args: (args.task_id,),
    idempotent=True,
    output=TaskRecord,
)
