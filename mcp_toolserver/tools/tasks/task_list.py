"""List the tasks of the board, oldest first: id, status, subject, owner, and what each waits for."""

from typing import Literal

from mcp_toolserver import tool as t
from mcp_toolserver.text.board import task_line
from mcp_toolserver.tools.tasks.task_record import Owner, as_json


class TaskList(t.Args):
    status: Literal["pending", "blocked", "in_progress", "completed", "failed", "cancelled"] | None = t.Field(
        default=None, description="Only tasks with this status"
    )
    owner: Owner | None = t.Field(default=None, description="Only tasks of this owner")


class Tasks(t.Record):
    tasks: tuple[dict[str, t.JsonValue], ...]
    count: int


async def run(args: TaskList, rt: t.Runtime) -> t.Output:
    found = [
        task
        for task in await rt.tasks.all()
        if args.status in (None, task.shown_status) and args.owner in (None, task.worker)
    ]
    text = "\n".join(map(task_line, found)) or "No tasks."
    return t.Output(text, data=Tasks(tasks=tuple(map(as_json, found)), count=len(found)))


TOOL = t.ToolSpec(
    name="TaskList",
    title="List tasks",
    args=TaskList,
    run=run,
    needs=frozenset({t.Capability.TASKS}),
    idempotent=True,
    output=Tasks,
)
