"""How the tools of the board name and return tasks."""

from typing import Annotated

from mcp_toolserver import tool as t
from mcp_toolserver.text.board import SUBJECT, task_line
from mcp_toolserver.text.timestamps import utc

TaskId = Annotated[str, t.Field(min_length=1, max_length=100)]
TaskIds = Annotated[tuple[TaskId, ...], t.Field(strict=False, max_length=50)]

Subject = Annotated[str, t.Field(max_length=SUBJECT), t.NotBlank]
Owner = Annotated[str, t.Field(max_length=100), t.NotBlank]
ActiveForm = Annotated[str, t.Field(max_length=SUBJECT), t.NotBlank]
IGNORED = {"metadata": "it is not kept"}
Description = Annotated[str, t.Field(max_length=8_000), t.NotBlank]


class TaskRecord(t.Record):
    """A task, as structured data."""

    task: dict[str, t.JsonValue]


def record_of(task: t.TaskDetail) -> TaskRecord:
    """All of a task that is not empty."""
    summary = task.summary
    fields: dict[str, t.JsonValue] = {
        **as_json(summary),
        "description": task.description,
        "active_form": task.active_form,
        "prompt": task.prompt,
        "command": task.command,
        "depends_on": list(task.depends_on),
        "messages": [{"text": one.text, "at": _time(one.at)} for one in task.messages],
        "output_bytes": task.output_bytes,
        "created_at": _time(task.created),
        "updated_at": _time(task.updated),
    }
    return TaskRecord(task={name: value for name, value in fields.items() if value not in ("", [], 0)})


def as_json(task: t.TaskSummary) -> dict[str, t.JsonValue]:
    """The fields of a list."""
    fields: dict[str, t.JsonValue] = {
        "task_id": task.id,
        "status": task.shown_status,
        "subject": task.subject,
        "owner": task.worker,
        "runs": task.runs,
        "blocked_by": list(task.blocked_by),
        "reason": task.reason,
    }
    return {name: value for name, value in fields.items() if value not in ("", [])}


def detail_text(task: t.TaskDetail) -> str:
    """All of a task, for the model."""
    parts = [task_line(task.summary)]
    named = (("description", task.description), ("prompt", task.prompt), ("command", task.command))
    parts.extend(f"{name}:\n{text}" for name, text in named if text)
    if task.depends_on:
        parts.append(f"depends on {', '.join(task.depends_on)}")
    parts.extend(f"[{_time(one.at)}] {one.text}" for one in task.messages)
    parts.append(f"created {_time(task.created)}, changed {_time(task.updated)}")
    return "\n".join(parts)


def _time(seconds: float) -> str:
    return utc(round(seconds * 1000))
