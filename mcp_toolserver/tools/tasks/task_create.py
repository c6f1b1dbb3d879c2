"""Put a task on the board, which outlives this session. With `command` the shell runs it, with `prompt` an
agent, in the background and with at most your rights now, as soon as the tasks in blocked_by are completed;
TaskOutput waits for its end. With neither it is a note that you update with TaskUpdate.
"""

from typing import Annotated, Literal

from mcp_toolserver import tool as t
from mcp_toolserver.text.board import headline, task_line
from mcp_toolserver.tools.tasks.task_record import (
    IGNORED,
    ActiveForm,
    Description,
    Owner,
    Subject,
    TaskIds,
    TaskRecord,
    record_of,
)

Work = Annotated[str, t.Field(max_length=32_000), t.NotBlank]


class TaskCreate(t.Args):
    subject: Subject | None = t.Field(default=None, description="Title; default: taken from the other texts")
    description: Description | None = t.Field(default=None, description="What has to be done")
    prompt: Work | None = t.Field(default=None, description="Instructions for an agent that does it")
    command: Work | None = t.Field(default=None, description="Bash script that does it")
    blocked_by: TaskIds = t.Field(
        default=(), strict=False, description="Ids of tasks that have to be completed first"
    )
    owner: Owner | None = t.Field(default=None, description="Who works on it, any name")
    status: Literal["pending", "in_progress"] = t.Field(
        default="pending", description="Status of a note at first"
    )
    active_form: ActiveForm | None = t.Field(default=None, description="The subject in the -ing form")

    @t.model_validator(mode="after")
    def _something(self) -> "TaskCreate":
        if self.prompt is not None and self.command is not None:
            raise ValueError("prompt and command exclude each other; create two tasks")
        if not (self.subject or self.prompt or self.command or self.description):
            raise ValueError("subject, prompt or command is required")
        if self.status != "pending" and (self.prompt or self.command):
            raise ValueError("the server sets the status of a task that it runs; leave status out")
        return self


async def run(args: TaskCreate, rt: t.Runtime) -> t.Output:
    texts = (args.description, args.prompt, args.command)
    made = await rt.tasks.create(
        t.NewTask(
            subject=args.subject or headline(*(text or "" for text in texts)),
            description=args.description or "",
            active_form=args.active_form or "",
            prompt=args.prompt or "",
            command=args.command or "",
            worker=args.owner or "",
            status=args.status,
            blocked_by=args.blocked_by,
        )
    )
    return t.Output(f"Task created: {task_line(made.summary)}", data=record_of(made))


TOOL = t.ToolSpec(
    name="TaskCreate",
    title="Create task",
    args=TaskCreate,
    run=run,
    needs=frozenset({t.Capability.TASKS, t.Capability.TASK_RUNS}),
    subjects=lambda args: tuple(text for text in (args.command, args.prompt) if text),
    output=TaskRecord,
    ignored=IGNORED,
    aliases=(t.Alias("TaskCreate", {"addBlockedBy": "blocked_by"}),),
)
