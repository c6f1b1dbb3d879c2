"""MCP tasks as background jobs, for TaskOutput and TaskStop."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from mcp_toolserver.capabilities.call_scope import SECONDS_TO_ANSWER
from mcp_toolserver.capabilities.processes import JobQuery, JobState
from mcp_toolserver.errors import Conflict, NotFound
from mcp_toolserver.protocol.tasks.task import Task
from mcp_toolserver.stores.tasks import TaskRecord
from mcp_toolserver.text.json_values import is_list, is_object
from mcp_toolserver.text.lines.utf8_stream import decode_page

_RUNNING = ("working", "input_required")


@dataclass(frozen=True)
class TaskJobs:
    """Implements `JobSource`. A task has output once it has ended: the text of its result."""

    find: Callable[[str], Awaitable[Task | TaskRecord | None]]

    async def output(self, query: JobQuery) -> JobState:
        task = await self._found(query.handle)
        if isinstance(task, Task):
            with anyio.move_on_after(min(query.wait, SECONDS_TO_ANSWER)):
                await task.ended.wait()
        return _state(task.written() if isinstance(task, Task) else task, query)

    async def stop(self, handle: str) -> JobState:
        task = await self._found(handle)
        record = task.record if isinstance(task, Task) else task
        if record.status not in _RUNNING:
            raise Conflict(f"task {handle} is already in terminal state: {record.status}")
        if not isinstance(task, Task):
            raise Conflict(f"{handle} runs in another server of the workspace, which alone can stop it.")
        task.scope.cancel()
        await task.ended.wait()
        return _state(task.record, JobQuery(handle=handle, limit=0))

    async def _found(self, handle: str) -> Task | TaskRecord:
        task = await self.find(handle)
        if task is None:
            raise NotFound(f"task not found: {handle}. Its result may no longer be stored.")
        return task


def _state(record: TaskRecord, query: JobQuery) -> JobState:
    running = record.status in _RUNNING
    data = b"" if running else _text(record).encode(errors="replace")
    start = min(query.offset, len(data))
    page = data[start : start + query.limit]
    text, used = decode_page(page, last=start + len(page) == len(data))
    status = record.status.replace("_", " ")
    return JobState(
        handle=record.id,
        text=text,
        start=start,
        next_offset=start + used,
        total=len(data),
        running=running,
        exit_status=None,
        reason="running" if running else "exited",
        seconds=record.updated - record.created,
        status=f"{status}: {record.message}" if record.message else status,
    )


def _text(record: TaskRecord) -> str:
    """The text of the result of a call; empty if it has none."""
    outcome: object = json.loads(record.outcome or "{}")
    content = outcome.get("content") if is_object(outcome) else None
    blocks = content if is_list(content) else []
    texts = (block.get("text") for block in blocks if is_object(block))
    return "\n".join(text for text in texts if isinstance(text, str))
