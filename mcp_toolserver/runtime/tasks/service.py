"""The task board of one owner, for the tools, and its tasks as background jobs."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from anyio import current_time

from mcp_toolserver.capabilities.call_scope import longest_wait
from mcp_toolserver.capabilities.processes import JobQuery, JobState
from mcp_toolserver.capabilities.tasks import FINAL, NewTask, TaskChange, TaskDetail, TaskSummary
from mcp_toolserver.errors import Unavailable
from mcp_toolserver.pipeline import stored_rights
from mcp_toolserver.runtime.host_services import ServiceRequest
from mcp_toolserver.runtime.tasks.runner import TOOLS, Run, TaskRunner, wait_for
from mcp_toolserver.stores.board import StoredTask, new_id
from mcp_toolserver.text.lines.encoding import decode_page

_STOPPED = "It was stopped with TaskStop."


@dataclass(frozen=True)
class OwnerTasks:
    """The tasks of the caller, also as background jobs (`JobSource`).

    Every method raises:
        NotFound: the caller has no such task.
        Conflict: a task is in a final state, or another server has been changing the board for seconds.
        Unavailable: the board cannot be read or written, or is full.
    """

    runner: TaskRunner
    request: ServiceRequest

    @property
    def _owner(self) -> str:
        return self.request.scope.owner

    async def create(self, task: NewTask) -> TaskDetail:
        """Add a task, which starts once its dependencies are completed.

        Raises:
            InvalidInput: a dependency is unknown.
            Unavailable: what the task has to run is not available to the caller.
        """
        self.runner.owners.add(self._owner)
        if not task.runs:
            return await self.runner.board.create(self._owner, new_id(), task, "")
        name = new_id()
        calls = self.runner.prepare(name, self.request.calls)
        try:
            if why := calls.lacks(TOOLS[task.runs]):
                raise Unavailable(
                    f"The task was not created, because it needs the tool {TOOLS[task.runs]}: {why}."
                )
            made = await self.runner.board.create(
                self._owner, name, task, stored_rights.to_json(calls.rights)
            )
        except BaseException:
            self.runner.drop(name)
            raise
        self.runner.look()
        return made

    async def get(self, task: str) -> TaskDetail:
        """One task."""
        found = (await self.runner.board.get(self._owner, task)).detail
        (summary,) = await self._with_obstacles((found.summary,))
        return replace(found, summary=summary)

    async def all(self) -> tuple[TaskSummary, ...]:
        """Every task of the caller, oldest first."""
        return await self._with_obstacles(await self.runner.board.all(self._owner))

    async def _with_obstacles(self, tasks: Sequence[TaskSummary]) -> tuple[TaskSummary, ...]:
        """The same, where one waits for a server that can run it, with what this one lacks."""
        if not any(one.is_left for one in tasks):
            return tuple(tasks)
        why = {
            one.id: await self.runner.obstacle(one.rights, TOOLS[one.runs])
            for one in await self.runner.board.left(self._owner)
        }
        return tuple(
            replace(one, reason=f"{one.reason} This one cannot: {why[one.id]}.") if why.get(one.id) else one
            for one in tasks
        )

    async def update(self, change: TaskChange) -> TaskDetail:
        """Change a task.

        Raises:
            InvalidInput: a dependency is unknown or would make a cycle, or the task cannot have this status.
        """
        changed = await self.runner.board.update(self._owner, change, self.request.calls.rights)
        if changed.summary.runs:
            self.runner.owners.add(self._owner)
        self.runner.look()
        return changed

    async def remove(self, task: str) -> TaskSummary:
        """Remove a task. Raises: Conflict: it runs, or another task depends on it."""
        removed = await self.runner.board.remove(self._owner, task, self.request.calls.rights)
        self.runner.drop(task)
        return removed

    async def output(self, query: JobQuery) -> JobState:
        """See `JobSource.output`."""
        commands, seconds = self.runner.context.commands_or_none, self.request.scope.seconds_to_answer
        most = longest_wait(seconds, None) if commands is None else commands.longest_wait(seconds)
        deadline = current_time() + min(query.wait, most)
        while True:
            news = self.runner.news
            stored = await self.runner.board.get(self._owner, query.handle)
            run, left = self.runner.runs.get(query.handle), deadline - current_time()
            state = await self._state(stored, run, query, max(left, 0.0))
            has_news = query.until != "end" and state.total > state.start
            if left <= 0 or not state.running or has_news:
                return state
            await wait_for(news, left)

    async def stop(self, handle: str, why: str = "") -> JobState:
        """See `JobSource.stop`; `why` is kept as the reason of the end."""
        reason = f"{_STOPPED.removesuffix('.')}: {why}" if why else _STOPPED
        async with self.runner.claiming:
            run = self.runner.runs.get(handle)
            stored = await self.runner.board.cancel(
                self._owner, handle, reason, self.request.calls.rights, runs_here=run is not None
            )
            if run is None:
                self.runner.drop(handle)
        if run is not None:
            await self.runner.stop(run, reason)
            stored = await self.runner.board.get(self._owner, handle)
        return _stored_state(stored, JobQuery(handle=handle, offset=stored.detail.output_bytes, limit=0))

    async def _state(self, stored: StoredTask, run: Run | None, query: JobQuery, wait: float) -> JobState:
        """The state of a task; waits if its command runs here."""
        summary = stored.detail.summary
        if summary.status != "in_progress" or not summary.runs:
            return _stored_state(stored, query)
        status = "running in another server of the workspace"
        if run is not None:
            if (live := await self.runner.output(run, query, wait)) is not None:
                return live
            progress = f": {run.progress}" if run.progress else ""
            status = f"running for {time.monotonic() - run.began:.1f} s{progress}"
        return _task_state(query, status, running=True)


def _stored_state(stored: StoredTask, query: JobQuery) -> JobState:
    """The state of a task that does not run, with its stored output."""
    summary = stored.detail.summary
    total, first = stored.detail.output_bytes, stored.output_start
    start = min(max(query.start, first), total)
    page = stored.output[start - first : start - first + query.limit]
    text, used = decode_page(page, last=start + len(page) == total)
    running = bool(summary.runs) and summary.status not in FINAL and not summary.is_blocked
    state = _task_state(query, _status(summary), running=running)
    return replace(state, text=text, start=start, next_offset=start + used, total=total)


def _status(task: TaskSummary) -> str:
    parts = [task.shown_status.replace("_", " ")]
    if task.reason:
        parts.append(task.reason.removesuffix("."))
    elif task.runs and task.status == "pending":
        waits = ", ".join(task.blocked_by)
        parts.append(f"waits for {waits}" if waits else "waits for others to end")
    return ": ".join(parts)


def _task_state(query: JobQuery, status: str, *, running: bool) -> JobState:
    """The state of a task without output."""
    reason = "running" if running else "exited"
    return JobState(handle=query.handle, running=running, reason=reason, status=status)
