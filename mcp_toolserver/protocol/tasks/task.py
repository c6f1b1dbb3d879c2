"""One call that runs as a task: its progress, questions and outcome; also as a background job."""

import json
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

import anyio
import mcp_types as mcp
from mcp.shared.exceptions import MCPError
from pydantic import JsonValue, ValidationError

from mcp_toolserver.capabilities.call_scope import SECONDS_TO_ANSWER
from mcp_toolserver.capabilities.processes import JobQuery, JobState
from mcp_toolserver.errors import Conflict, NotFound
from mcp_toolserver.protocol import elicitation
from mcp_toolserver.protocol.tasks.feature import PREFIX
from mcp_toolserver.stores.tasks import Status, TaskRecord
from mcp_toolserver.text.json_values import is_list, is_object
from mcp_toolserver.text.lines.encoding import decode_page
from mcp_toolserver.text.timestamps import utc

POLL_MS = 1_000
"""The poll interval suggested to clients."""

CANCELLED = "It was cancelled as the client asked."
FAILED = "The call failed inside the server."

_MESSAGE = 500
"""Maximum characters of a progress message."""

Wire = dict[str, JsonValue]

_ENDED: frozenset[Status] = frozenset({"completed", "cancelled", "failed"})


@dataclass(eq=False)
class _Question:
    """A question to the user, until answered."""

    request: Wire
    answered: anyio.Event = field(default_factory=anyio.Event)
    answer: mcp.ElicitResult | None = None


class Task:
    """A call; its request may already be answered. `changed` is called whenever the result of `tasks/get`
    changes."""

    def __init__(self, principal: str, changed: "Callable[[Task], None]") -> None:
        self.record = TaskRecord(id=PREFIX + secrets.token_hex(16), principal=principal)
        self.scope = anyio.CancelScope()
        """Cancelled with the task."""
        self.in_request = True
        """Whether the request that started it is still open, so that the client has no handle."""
        self.turn = anyio.Event()
        """Set when it ends or asks its first question."""
        self.ended = anyio.Event()
        self.settled = anyio.Event()
        """Set once the server has decided whether the request waits for the result."""
        self._result: Wire = {}
        self._error: mcp.ErrorData | None = None
        self._questions: dict[str, _Question] = {}
        self._asked = 0
        self._changed = changed

    def say(self, message: str) -> None:
        self._set(replace(self.record, message=message[:_MESSAGE]))

    async def ask(self, key: str, request: mcp.ElicitRequest) -> mcp.ElicitResult | None:
        """Ask the user. The call waits here and is not repeated. Raises: TimedOut: nobody answered."""
        # A task never uses the same key twice.
        self._asked += 1
        name = f"{key}-{self._asked}"
        wire = request.model_dump(by_alias=True, mode="json", exclude_none=True)
        self._questions[name] = question = _Question(wire)
        self._set(self.record)
        self.turn.set()
        try:
            with anyio.fail_after(elicitation.STATE_SECONDS):
                await question.answered.wait()
        except TimeoutError:
            raise elicitation.unanswered(elicitation.STATE_SECONDS) from None
        finally:
            self._questions.pop(name, None)
        return question.answer

    def take(self, responses: Mapping[str, object]) -> None:
        """Take the user's answers, which must fit their questions; ignores answers to unknown ones."""
        answers = {name: _answer(name, responses[name]) for name in self._questions if name in responses}
        for name, answer in answers.items():
            question = self._questions.pop(name)
            question.answer = answer
            question.answered.set()
        if answers:
            self._set(self.record)

    def complete(self, result: Wire) -> None:
        self._result = result
        self._end("completed", "")

    def fail(self, error: mcp.ErrorData) -> None:
        self._error = error
        self._end("failed", error.message)

    def cancel(self, why: str) -> None:
        """End the task as cancelled, after its processes are gone."""
        self._end("cancelled", why)

    def shrink(self, most: int, result: Wire) -> None:
        """Replace a result of more than `most` bytes by `result`."""
        if len(self.written().outcome.encode()) > most:
            self._result, self._error = result, None
            self.record = replace(self.record, status="completed", message="")

    def answer(self) -> Wire:
        """The answer to the request that started the task. Raises the error that the call ended with."""
        if self._error is not None:
            raise MCPError(self._error.code, self._error.message, self._error.data)
        return self._result

    def written(self) -> TaskRecord:
        outcome = self._outcome()
        return replace(self.record, outcome=json.dumps(outcome) if outcome else "")

    def handle(self, seconds: float) -> Wire:
        """The handle that the client gets instead of the result; valid until `seconds` after the end."""
        return {**_seed(self._shown(), seconds), "resultType": "task"}

    def detailed(self, seconds: float) -> Wire:
        """The result of `tasks/get`, also sent in notifications."""
        questions: Wire = {name: asked.request for name, asked in self._questions.items()}
        wire = _wire(self._shown(), self._outcome(), seconds)
        return {**wire, "inputRequests": questions} if questions else wire

    def _outcome(self) -> Wire:
        return self._result if self._error is None else self._error.model_dump(mode="json", exclude_none=True)

    def _shown(self) -> TaskRecord:
        return replace(self.record, status="input_required") if self._questions else self.record

    def _end(self, status: Status, message: str) -> None:
        self._questions.clear()
        self._set(replace(self.record, status=status, message=message[:_MESSAGE]))
        self.ended.set()
        self.turn.set()

    def _set(self, record: TaskRecord) -> None:
        self.record = replace(record, updated=time.time())
        self._changed(self)


def detailed(record: TaskRecord, seconds: float) -> Wire:
    """The result of `tasks/get` for a stored task, which is kept `seconds` after its end."""
    outcome: Wire = json.loads(record.outcome or "{}")
    return _wire(record, outcome or {"code": mcp.INTERNAL_ERROR, "message": record.message}, seconds)


def _wire(record: TaskRecord, outcome: Wire, seconds: float) -> Wire:
    kinds: Mapping[Status, str] = {"completed": "result", "failed": "error"}
    kind = kinds.get(record.status)
    return {**_seed(record, seconds), **({kind: outcome} if kind else {})}


def _seed(record: TaskRecord, seconds: float) -> Wire:
    """The fields common to all results. While the task runs, its expiry moves on with the clock."""
    last = record.updated if record.status in _ENDED else time.time()
    wire: Wire = {
        "taskId": record.id,
        "status": record.status,
        "createdAt": utc(round(record.created * 1000)),
        "lastUpdatedAt": utc(round(record.updated * 1000)),
        "ttlMs": max(1, round((last - record.created + seconds) * 1000)),
        "pollIntervalMs": POLL_MS,
    }
    return {**wire, "statusMessage": record.message} if record.message else wire


def _answer(name: str, response: object) -> mcp.ElicitResult:
    try:
        return mcp.ElicitResult.model_validate(response, by_name=False)
    except ValidationError:
        raise MCPError(
            mcp.INVALID_PARAMS, f"inputResponses.{name} is no answer to elicitation/create"
        ) from None


@dataclass(frozen=True)
class TaskJobs:
    """Tasks as background jobs, for TaskOutput and TaskStop. Implements `JobSource`.

    A task has output once it has ended: the text of its result.
    """

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
        if record.status in _ENDED:
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
    running = record.status not in _ENDED
    data = b"" if running else _text(record).encode(errors="replace")
    start = min(query.start, len(data))
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
