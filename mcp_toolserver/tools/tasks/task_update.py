"""Change a task of the board: its texts, owner, dependencies or, of a note, its status. A message is added to
the prompt of a task whose agent has not started. The status of a task that the server runs follows from its
work; TaskStop cancels it, and pending runs it again once it has failed or was cancelled. Else completed,
failed and cancelled are final.
"""

from typing import Annotated, Literal

from mcp_toolserver import tool as t
from mcp_toolserver.text.board import task_line
from mcp_toolserver.tools.tasks.task_record import (
    IGNORED,
    ActiveForm,
    Description,
    Owner,
    Subject,
    TaskId,
    TaskIds,
    TaskRecord,
    as_json,
    record_of,
)

Message = Annotated[str, t.Field(max_length=4_000), t.NotBlank]
Text = Annotated[str, t.Field(max_length=30_000), t.NotBlank]


class TaskUpdate(t.Args):
    task_id: TaskId = t.Field(description="Id of the task")
    status: Literal["pending", "in_progress", "completed", "failed", "cancelled", "deleted"] | None = t.Field(
        default=None, description="New status of a note; deleted removes any task that does not run"
    )
    message: Message | None = t.Field(default=None, description="Message to add to the task")
    subject: Subject | None = t.Field(default=None, description="The new title")
    description: Description | None = t.Field(default=None, description="The new description")
    active_form: ActiveForm | None = t.Field(default=None, description="The subject in the -ing form")
    owner: Owner | None = t.Field(default=None, description="The new owner")
    output: Text | None = t.Field(default=None, description="Output of a note, for TaskOutput")
    blocked_by: TaskIds | None = t.Field(
        default=None, strict=False, description="All dependencies anew; [] removes them"
    )
    add_blocked_by: TaskIds = t.Field(
        default=(), strict=False, description="More tasks that have to be completed first"
    )
    add_blocks: TaskIds = t.Field(
        default=(), strict=False, description="Tasks that wait for this one from now"
    )

    @t.model_validator(mode="after")
    def _something(self) -> "TaskUpdate":
        if self.model_fields_set <= {"task_id"}:
            raise ValueError("nothing to change was given; metadata is not kept")
        if self.status == "deleted" and self.model_fields_set != {"task_id", "status"}:
            raise ValueError("a task that is deleted cannot be changed as well")
        return self


async def run(args: TaskUpdate, rt: t.Runtime) -> t.Output:
    if args.status == "deleted":
        removed = await rt.tasks.remove(args.task_id)
        record = TaskRecord(task={**as_json(removed), "status": "deleted"})
        return t.Output(f"Task deleted: {removed.id} {removed.subject}", data=record)
    changed = await rt.tasks.update(
        t.TaskChange(
            id=args.task_id,
            status=args.status,
            subject=args.subject,
            description=args.description,
            active_form=args.active_form,
            worker=args.owner,
            output=args.output,
            message=args.message or "",
            blocked_by=args.blocked_by,
            add_blocked_by=args.add_blocked_by,
            add_blocks=args.add_blocks,
        )
    )
    return t.Output(f"Task updated: {task_line(changed.summary)}", data=record_of(changed))


TOOL = t.ToolSpec(
    name="TaskUpdate",
    title="Update task",
    args=TaskUpdate,
    run=run,
    needs=frozenset({t.Capability.TASKS, t.Capability.TASK_RUNS}),
    subjects=lambda args: (args.task_id,),
    output=TaskRecord,
    ignored=IGNORED,
    aliases=(t.Alias("TaskUpdate", {"id": "task_id"}),),
)
