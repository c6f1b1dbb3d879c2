"""The task board: work with dependencies that outlives the call and the server."""

from dataclasses import dataclass
from typing import Literal

TaskStatus = Literal["pending", "in_progress", "completed", "failed", "cancelled"]

Runs = Literal["", "command", "prompt"]
"""What the server runs for a task; empty for one that its creator reports on."""

FINAL: frozenset[TaskStatus] = frozenset({"completed", "failed", "cancelled"})
"""A task with one of these never changes its status again."""


@dataclass(frozen=True, kw_only=True)
class NewTask:
    """A task to create. With `prompt` an agent runs it, with `command` the shell; else its creator reports on
    it."""

    subject: str
    description: str = ""
    active_form: str = ""
    prompt: str = ""
    command: str = ""
    worker: str = ""
    """Who works on it."""
    status: TaskStatus = "pending"
    blocked_by: tuple[str, ...] = ()
    """Ids of tasks that have to be completed first."""

    @property
    def runs(self) -> Runs:
        """What the server runs for it."""
        return "command" if self.command else "prompt" if self.prompt else ""


@dataclass(frozen=True, kw_only=True)
class TaskSummary:
    """What a list shows of a task."""

    id: str
    subject: str
    status: TaskStatus
    worker: str = ""
    runs: Runs = ""
    blocked_by: tuple[str, ...] = ()
    """Ids of the tasks it depends on and that are not completed."""
    reason: str = ""
    """Why it failed, was cancelled or can never start, as a sentence."""
    is_blocked: bool = False
    """Whether it can never start, because a task that it depends on failed or was cancelled."""
    is_left: bool = False
    """Whether its server ended before it began, so that it waits for one that can run it."""

    @property
    def shown_status(self) -> str:
        """Its status; `blocked` if it can never start."""
        return "blocked" if self.is_blocked else self.status


@dataclass(frozen=True, kw_only=True)
class TaskMessage:
    """A note on a task."""

    text: str
    at: float
    """Seconds since 1970."""


@dataclass(frozen=True, kw_only=True)
class TaskDetail:
    """All of a task but its output."""

    summary: TaskSummary
    description: str
    active_form: str
    prompt: str
    command: str
    depends_on: tuple[str, ...]
    """Ids of all the tasks it depends on."""
    messages: tuple[TaskMessage, ...]
    created: float
    """Seconds since 1970, as is `updated`."""
    updated: float
    output_bytes: int
    """Bytes of output so far that the board stores."""


@dataclass(frozen=True, kw_only=True)
class TaskChange:
    """What to change of a task; None keeps a field."""

    id: str
    status: TaskStatus | None = None
    subject: str | None = None
    description: str | None = None
    active_form: str | None = None
    worker: str | None = None
    output: str | None = None
    message: str = ""
    """A note to add."""
    blocked_by: tuple[str, ...] | None = None
    """Replaces the dependencies."""
    add_blocked_by: tuple[str, ...] = ()
    add_blocks: tuple[str, ...] = ()
    """Tasks that have to wait for this one from now on."""
