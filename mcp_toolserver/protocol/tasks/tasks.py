"""The extension `io.modelcontextprotocol/tasks`: calls that outlive their request.

A call that may be long starts at once, in a task group of the server. If it ends within the grace period, the
server answers the request as usual; else it returns a handle, and the client polls the task with that.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Hashable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import anyio
import mcp_types as mcp
from anyio.abc import TaskGroup
from mcp.shared.exceptions import MCPError
from pydantic import JsonValue

from mcp_toolserver.errors import ToolError, Unavailable, UnknownTool
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.protocol import translate
from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.resources.feature import ResourceFeature
from mcp_toolserver.protocol.tasks.feature import GROUP, LISTENED, named, require, unknown
from mcp_toolserver.protocol.tasks.task import CANCELLED, FAILED, Task, TaskJobs, Wire, detailed
from mcp_toolserver.protocol.translate import Context
from mcp_toolserver.stores.tasks import StoredTasks, TaskRecord
from mcp_toolserver.text.json_values import is_list, is_object

log = logging.getLogger(__name__)

_DONE: Wire = {"resultType": "complete"}
_TOO_LARGE = Result(
    text="The call has ended, but its result was too large to be kept.", error=Unavailable.kind
)
_LOST = "The call has ended, but what came of it could not be kept."


Work = Callable[[Task], Awaitable[Wire]]
"""The work of a task; returns the result of the call."""


@dataclass(frozen=True, kw_only=True)
class TaskLimits:
    grace: float = 1.0
    """Seconds in which a call may end and be answered without a task."""
    running: int = 32
    """Maximum running tasks; more are refused."""
    unkept: int = 32
    """Maximum ended tasks kept in memory because they could not be stored."""
    unkept_bytes: int = 256 << 10
    """Maximum bytes of the result of one of those."""


SUBSCRIBED = 64
"""Maximum tasks of one stream of notifications."""


@dataclass(eq=False)
class Tasks:
    """The handlers of the extension. A task belongs to `principal` and to the client whose request started
    it."""

    handlers: Handlers
    store: StoredTasks
    principal: str
    limits: TaskLimits = field(default_factory=TaskLimits)
    changed: Callable[[Wire], None] = lambda _: None
    """Called with the result of `tasks/get` whenever it changes."""
    _live: dict[str, Task] = field(default_factory=dict[str, Task])
    """Running tasks."""
    _unkept: dict[str, Task] = field(default_factory=dict[str, Task])
    """The last ended tasks that could not be stored."""

    async def cancel_running(self) -> None:
        """Store all running tasks as cancelled, when the server ends."""
        with anyio.CancelScope(shield=True):
            await self.store.cancel_running()

    async def call_tool(
        self, context: Context, params: mcp.CallToolRequestParams
    ) -> dict[str, JsonValue] | mcp.InputRequiredResult:
        """Run a call of a client that supports tasks; as a task if it may be long."""

        async def work(task: Task) -> Wire:
            return await self.handlers.call_as_task(context, params, task)

        if not self._may_be_long(params) or self.handlers.runs_in_rounds(context, params):
            return await self.handlers.call_tool(context, params)
        return await self.carry(context, work)

    async def carry(self, context: Context, work: Work, *, grace: float | None = None) -> Wire:
        """Run `work`; returns its result if it ends within the grace period, else the handle of its task.

        Raises:
            MCPError: the client does not support tasks; or `work` raised it.
        """
        require(context)
        if sum(not task.ended.is_set() for task in self._live.values()) >= self.limits.running:
            why = (
                f"{self.limits.running} calls run as tasks already, and no more may. Wait for one to end, or "
                "cancel one, and call again."
            )
            return translate.result(Result(text=why, error=Unavailable.kind), context.protocol_version)
        task = Task(self._principal_of(self.handlers.client_ids.id_for(context)), self._publish)
        self._live[task.record.id] = task
        group: TaskGroup = context.lifespan_context[GROUP]
        group.start_soon(self._run, task, work)
        try:
            with anyio.move_on_after(self.limits.grace if grace is None else grace):
                await task.turn.wait()
            return await self._settle(task)
        except anyio.get_cancelled_exc_class():
            # The client left without a handle, so nobody can ask for the result.
            task.scope.cancel()
            raise
        finally:
            task.settled.set()

    async def get(self, context: Context, _: mcp.RequestParams) -> Wire:
        """The state of a task, with its result if it ended."""
        found = await self._find(context)
        seconds = self.store.retention.seconds
        wire = found.detailed(seconds) if isinstance(found, Task) else detailed(found, seconds)
        return {**wire, **_DONE}

    async def update(self, context: Context, _: mcp.RequestParams) -> Wire:
        found = await self._find(context)
        responses = (context.params or {}).get("inputResponses")
        if not is_object(responses):
            raise MCPError(mcp.INVALID_PARAMS, "inputResponses must be an object.")
        if (task := _own(found)) is not None:
            task.take(responses)
        return _DONE

    async def cancel(self, context: Context, _: mcp.RequestParams) -> Wire:
        """Cancel a task and its processes. An ended task does not change."""
        found = await self._find(context)
        if (task := _own(found)) is not None:
            task.scope.cancel()
        return _DONE

    def running(self, name: object, owner: str) -> Wire | None:
        """The result of `tasks/get` for a running task of `owner`; None for any other."""
        task = self._live.get(name) if isinstance(name, str) else None
        if task is None or task.in_request or task.record.principal != self._principal_of(owner):
            return None
        return task.detailed(self.store.retention.seconds)

    def forget(self, owner: str) -> None:
        """Cancel the running tasks of `owner`, who will not return."""
        for task in self._live.values():
            if task.record.principal == self._principal_of(owner):
                task.scope.cancel()

    def jobs_of(self, owner: str) -> TaskJobs:
        """The tasks of `owner` as background jobs of the server."""
        return TaskJobs(partial(self._task_of, self._principal_of(owner)))

    def _principal_of(self, owner: str) -> str:
        return f"{self.principal}, {owner}"

    def _may_be_long(self, params: mcp.CallToolRequestParams) -> bool:
        try:
            tool = self.handlers.dispatcher.target(params.name, params.arguments)
        except UnknownTool:
            return False
        return tool is not None and tool.may_be_long

    async def _settle(self, task: Task) -> Wire:
        """Return the handle once the task is stored; if it cannot be stored, wait for the result."""
        if not task.ended.is_set():
            # From here on the end of the task is stored, whichever comes first.
            task.in_request = False
            task.in_request = not await self._is_kept(task.written())
        if task.ended.is_set() or task.in_request:
            await task.ended.wait()
            return task.answer()
        return task.handle(self.store.retention.seconds)

    async def _run(self, task: Task, work: Work) -> None:
        try:
            with task.scope:
                await _done(task, work)
        finally:
            if task.scope.cancelled_caught:
                task.cancel(CANCELLED)
            with anyio.CancelScope(shield=True):
                # A task still running ends with the server, which stores all of those at once.
                if task.ended.is_set():
                    await task.settled.wait()
                    await self._conclude(task)
            del self._live[task.record.id]

    async def _conclude(self, task: Task) -> None:
        """Keep the outcome in the store, or in memory if the store is full."""
        record = task.written()
        if task.in_request or await self._is_kept(record):
            return
        task.shrink(self.limits.unkept_bytes, translate.result(_TOO_LARGE, translate.MODERN))
        self._unkept[record.id] = task
        if len(self._unkept) > self.limits.unkept:
            del self._unkept[next(iter(self._unkept))]
        # The store says that it is lost, for when this server has ended.
        await self._is_kept(replace(record, status="failed", message=_LOST, outcome=""))

    async def _is_kept(self, record: TaskRecord) -> bool:
        try:
            await self.store.keep(record)
        except ToolError as error:
            log.warning("a task could not be written down: %s", error)
            return False
        return True

    def _publish(self, task: Task) -> None:
        if not task.in_request:
            self.changed(task.detailed(self.store.retention.seconds))

    async def _find(self, context: Context) -> Task | TaskRecord:
        principal = self._principal_of(self.handlers.client_ids.id_for(context))
        try:
            found = await self._task_of(principal, named(context))
        except ToolError as error:
            raise MCPError(mcp.INTERNAL_ERROR, str(error)) from None
        if found is None:
            raise unknown()
        return found

    async def _task_of(self, principal: str, name: str) -> Task | TaskRecord | None:
        """The task `name` of `principal`. Raises: Unavailable, Conflict: the store cannot be read."""
        task = self._live.get(name) or self._unkept.get(name)
        if task is not None and not task.in_request and task.record.principal == principal:
            return task
        return await self.store.find(name, principal)


def _own(found: Task | TaskRecord) -> Task | None:
    """The task if it runs here; None if it has ended. Refuses one that runs in another server."""
    if isinstance(found, Task):
        return found
    if found.status == "working":
        raise MCPError(
            mcp.INVALID_PARAMS,
            "This task runs in another server of the workspace, and only its own client can change it.",
        )
    return None


async def _done(task: Task, work: Work) -> None:
    """Run the work of a task and set its outcome."""
    try:
        task.complete(await work(task))
    except MCPError as error:
        task.fail(error.error)
    except Exception:
        # A bug in one call must not end the others; its text stays in the log.
        log.exception("a task failed")
        task.fail(mcp.ErrorData(code=mcp.INTERNAL_ERROR, message=FAILED))


def connect(tasks: Tasks, feature: ResourceFeature) -> None:
    """Let clients subscribe to `tasks` through `subscriptions/listen`."""

    def publish(state: Wire) -> None:
        # Nobody has subscribed yet.
        if feature.is_in_use:
            from mcp_toolserver.protocol.resources.subscriptions import ChangeNotification

            feature.publish(ChangeNotification((LISTENED, state["taskId"]), partial(_notification, state)))

    def honoured(asked: object, owner: str) -> tuple[list[str], Collection[Hashable]] | None:
        """The running tasks among `asked`; publishes the state of each at once."""
        running = [tasks.running(one, owner) for one in asked] if is_list(asked) else []
        found = {str(state["taskId"]): state for state in running if state is not None}
        names = list(found)[:SUBSCRIBED]
        for name in names:
            publish(found[name])
        return (names, [(LISTENED, name) for name in names]) if names else None

    tasks.changed = publish
    feature.extra[LISTENED] = honoured


def _notification(state: Wire, meta: dict[str, Any]) -> "mcp.Notification[dict[str, Any], str]":
    return mcp.Notification[dict[str, Any], str](
        method="notifications/tasks", params={**state, "_meta": meta}
    )
