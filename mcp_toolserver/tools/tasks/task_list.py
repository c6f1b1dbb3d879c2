"""List the tasks of the board, oldest first: id, status, subject, owner, and what each waits for."""

from typing import Literal

from mcp_toolserver.text.board import task_line
from mcp_toolserver.tool import (
    Args,
    Capability,
    Field,
    JsonValue,
    Output,
    Permission,
    Record,
    Runtime,
    ToolSpec,
)
from mcp_toolserver.tools.tasks.task_record import Owner, as_json


class TaskList(Args):
    status: Literal["pending", "blocked", "in_progress", "completed", "failed", "cancelled"] | None = Field(
        default=None, description="Only tasks with this status"
    )
    owner: Owner | None = Field(default=None, description="Only tasks of this owner")


class Tasks(Record):
    tasks: tuple[dict[str, JsonValue], ...]
    count: int


async def run(args: TaskList, rt: Runtime) -> Output:
    found = [
        task
        for task in await rt.tasks.all()
        if args.status in (None, task.shown_status) and args.owner in (None, task.worker)
    ]
    text = "\n".join(map(task_line, found)) or "No tasks."
    return Output(text, data=Tasks(tasks=tuple(map(as_json, found)), count=len(found)))


TOOL = ToolSpec(
    name="TaskList",
    title="List tasks",
    description=__doc__ or "",
    args=TaskList,
    run=run,
    permission=Permission.READ_ONLY,
    needs=frozenset({Capability.TASKS}),
    kind="other",
    subjects=lambda _: (),
    idempotent=True,
    output=Tasks,
)
