"""An agent, from its start until it and all that it started have ended.

It asks its model, runs the calls that the model makes, and shows it the results, until it makes none.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

import anyio

from mcp_toolserver.capabilities.model import Model, ModelRequest, ModelTool, ToolCall, ToolReply, UserText
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import Conflict, ToolError, Unavailable, UnknownTool
from mcp_toolserver.runtime.background import ended
from mcp_toolserver.text.agents.conversation import Conversation, unanswered
from mcp_toolserver.text.lines.encoding import head_bytes

if TYPE_CHECKING:
    from mcp_toolserver.capabilities.agents import AgentState, AgentStatus
    from mcp_toolserver.capabilities.call_scope import Report
    from mcp_toolserver.pipeline.call import Result
    from mcp_toolserver.pipeline.nested_calls import NestedCalls
    from mcp_toolserver.pipeline.registry import Entry
    from mcp_toolserver.runtime.agents.agents import ServerAgents
    from mcp_toolserver.runtime.agents.isolation import Isolation
    from mcp_toolserver.runtime.agents.spending import Spending
    from mcp_toolserver.stores.agents import AgentRecord

log = logging.getLogger(__name__)

MAX_UNREAD = 50
"""Messages that wait for the next turn of an agent."""

MAX_NOTES = 20
"""Messages of an agent to the client that started it."""

RESULT_BYTES = 200_000
REPLY_BYTES = 40_000
"""Maximum bytes of the result of one call that the model sees."""

CONVERSATION_BYTES = 4 << 20

CALLS = 32
"""Maximum calls of one turn."""

_CUT = "Not run: your answer was cut at its longest before it was complete. Make smaller calls, one a turn."

PARALLEL = 8
"""Reading calls of one turn that run at the same time."""


@dataclass(eq=False, kw_only=True)
class RunningAgent:
    """One run of an agent."""

    record: AgentRecord
    """At the start with what it used in earlier runs."""
    conversation: Conversation
    """Its last message is the task at the start."""
    stored: int
    """Messages of the conversation that are stored already."""
    model: Model
    model_name: str
    calls: NestedCalls
    system: str
    seconds: float
    """How long this run may take."""
    spending: Spending
    agents: ServerAgents
    """Those that it is one of."""
    isolation: Isolation | None
    """Its worktree; None if it works in the folders of who started it."""
    report: Report | None
    """Receives each step; None once nobody waits for the agent."""

    def __post_init__(self) -> None:
        self.task: asyncio.Task[None]
        """Its work, once it was started."""
        self.error: ToolError | None = None
        """Why its model did not answer."""
        self.calls = self.calls.reporting(self._report_call)
        self._before = self.record
        self._began = time.monotonic()
        self._step = ""
        self._inbox: list[str] = []
        self._is_over = False
        """Whether it has no next turn."""
        self._scope = anyio.CancelScope()
        self._news = anyio.Event()
        self.has_ended = False
        """Whether it and all that it started have ended."""

    async def run(self) -> None:
        """Run to the end. Being cancelled from outside counts as the end of the server."""
        status: AgentStatus = "lost"
        detail = ""
        try:
            status, detail = await self._run()
        finally:
            self._is_over = True
            try:
                with anyio.CancelScope(shield=True):
                    await self._conclude(status, detail)
            finally:
                self.has_ended = True
                self._announce()

    async def _conclude(self, status: AgentStatus, detail: str) -> None:
        try:
            self._add_note(await self.agents.clean_up(self.record.handle, self.isolation))
        finally:
            if replies := unanswered(self.conversation.messages):
                self.conversation.add(replies)
            self._step = ""
            self.record = replace(self._current(), status=status, detail=detail)
        try:
            await self._save()
        except ToolError as error:
            log.warning("the end of %s could not be stored: %s", self.record.handle, error)

    async def _run(self) -> tuple[AgentStatus, str]:
        with self._scope, anyio.move_on_after(self.seconds):
            try:
                limit = await self._work()
            except ToolError as error:
                self.error = error
                return "failed", str(error)
            except Exception:
                log.exception("%s failed", self.record.handle)
                return "failed", "an error inside the server, which its log describes"
            return ("limited", limit) if limit else ("finished", "")
        if self._scope.cancel_called:
            return "stopped", ""
        return "limited", f"it reached the limit of {self.seconds:g} s"

    async def _work(self) -> str | None:
        """Go on until the model makes no call; returns the limit that ended the conversation before."""
        conversation, entries = self.conversation, self.calls.entries()
        tools = tuple(
            ModelTool(name=spec.name, description=spec.description, schema=spec.schema)
            for spec in (entry.spec for entry in entries)
        )
        reading = _reading(entries)
        while (limit := self._limit()) is None:
            self._read_inbox()
            await self._note("waits for its model")
            turn = await self.model.turn(self._request(tools))
            self.spending.add(turn)
            conversation.add(turn)
            await self._save()
            if turn.limit:
                return turn.limit
            if turn.calls:
                if limit := self._limit():
                    return limit
                cut = tuple(_refusal(call, _CUT) for call in turn.calls if turn.is_cut)
                conversation.add(cut or await self._replies(turn.calls, reading))
                await self._save()
            elif turn.is_cut:
                return f"its answer was cut at the limit of {ModelRequest.max_tokens:,} tokens"
            elif not turn.text.strip():
                raise Unavailable("Its model answered nothing. Try again.")
            elif not self._read_inbox():
                return None
        return limit

    def _limit(self) -> str | None:
        if self.conversation.size >= CONVERSATION_BYTES:
            return f"its conversation reached the limit of {CONVERSATION_BYTES:,} bytes"
        return self.spending.reached()

    def _read_inbox(self) -> bool:
        """Add what others have sent to the conversation; return whether there was anything."""
        received, self._inbox = self._inbox, []
        for text in received:
            self.conversation.add(UserText(text))
        return bool(received)

    def _request(self, tools: tuple[ModelTool, ...]) -> ModelRequest:
        return ModelRequest(
            system=self.system,
            messages=tuple(self.conversation.messages),
            tools=tools,
            model=self.model_name,
            agent_type=self.record.type,
        )

    async def _replies(self, calls: Sequence[ToolCall], reading: Collection[str]) -> tuple[ToolReply, ...]:
        """Run the calls: consecutive ones that read at the same time, others one after the other."""
        replies: dict[int, ToolReply] = {}
        limiter = anyio.CapacityLimiter(PARALLEL)

        async def run(number: int, call: ToolCall) -> None:
            async with limiter:
                replies[number] = await self._reply(call)

        for batch in _batches(calls[:CALLS], reading):
            await self._note(f"calls {', '.join(call.name[:40] for _, call in batch)}")
            async with anyio.create_task_group() as tasks:
                for number, call in batch:
                    tasks.start_soon(run, number, call)
        surplus = f"Not run: one turn may make at most {CALLS} calls. Make it again in the next turn."
        return tuple(replies.get(number) or _refusal(call, surplus) for number, call in enumerate(calls))

    async def _reply(self, call: ToolCall) -> ToolReply:
        if isinstance(call.arguments, str):
            return _refusal(
                call, "Not run: the arguments are not a JSON object. Make the call again with one."
            )
        try:
            result = await self.calls.call(call.name, call.arguments)
        except UnknownTool:
            return _refusal(call, "Not run: there is no tool of this name. Use one of those you were given.")
        is_error = result.error is not None
        return ToolReply(id=call.id, name=call.name, text=_shortened(result), is_error=is_error)

    async def stop(self) -> None:
        """End it, and wait until all that it started is gone, even when the caller is cancelled."""
        self._scope.cancel()
        with anyio.CancelScope(shield=True):
            # Unlike `has_ended`, it also ends if the server began to end before the agent ran.
            await ended(self.task)

    def deliver(self, text: str) -> None:
        """Let the agent have a message with its next turn.

        Raises:
            Conflict: it has no next turn, or too many messages wait.
        """
        if self._is_over:
            raise ended_error(self.record)
        if len(self._inbox) >= MAX_UNREAD:
            raise Conflict(
                f"{self.record.name or self.record.handle} has {MAX_UNREAD} messages that it has not read. "
                "Send it more once it has gone on."
            )
        self._inbox.append(text)

    def note(self, text: str) -> None:
        """Add a message for who started the agent. Raises: Conflict: there are too many."""
        if len(self.record.notes) >= MAX_NOTES:
            raise Conflict(
                f"The leader has {MAX_NOTES} messages already. Put the rest into your last answer."
            )
        self._add_note(text)
        self._announce()

    def _add_note(self, text: str) -> None:
        if line := " ".join(text.split()):
            self.record = replace(self.record, notes=(*self.record.notes, line))

    async def wait(self, seconds: float, *, for_step: bool = False) -> None:
        """Wait for the end, or for the next step, at most `seconds`."""
        with anyio.move_on_after(seconds):
            while not self.has_ended:
                await self._news.wait()
                if for_step:
                    return

    def state(self) -> AgentState:
        return replace(self._current(), step=self._step)

    def _current(self) -> AgentRecord:
        """The record with what this run used and said."""
        if self.has_ended:
            return self.record
        before, spending = self._before, self.spending
        return replace(
            self.record,
            text=_result(self.conversation.said()),
            turns=before.turns + spending.turns,
            tokens=before.tokens + spending.tokens,
            cost=None if before.cost is None or spending.cost is None else before.cost + spending.cost,
            seconds=before.seconds + time.monotonic() - self._began,
            size=self.conversation.size,
            updated=time.time(),
        )

    async def _save(self) -> None:
        messages = self.conversation.messages
        await self.agents.store.save(self._current(), messages[self.stored :], at=self.stored)
        self.stored = len(messages)

    async def _note(self, message: str) -> None:
        self._step = message
        self._announce()
        await self._report_call(f"turn {self.spending.turns + 1}: {message}")

    async def _report_call(self, message: str) -> None:
        if self.report is not None:
            await self.report(f"{self.record.name or self.record.description}: {message}")

    def _announce(self) -> None:
        self._news.set()
        self._news = anyio.Event()
        self.agents.context.changes.changed("agent", self.record.handle)


def ended_error(record: AgentRecord) -> Conflict:
    return Conflict(
        f"{record.name or record.handle} has ended and reads no messages. To go on with it, call Agent with "
        f"resume: {record.handle}."
    )


def _result(said: str) -> str:
    kept = head_bytes(said, RESULT_BYTES)
    return kept if kept == said else f"{kept}\n[{len(said) - len(kept)} characters more were not kept]"


def _reading(entries: Sequence[Entry]) -> frozenset[str]:
    """All names of the tools that only read."""
    specs = [entry.spec for entry in entries if entry.spec.own_permission is Permission.READ_ONLY]
    aliases = [alias.name for spec in specs for alias in spec.aliases]
    return frozenset([*aliases, *[spec.name for spec in specs]])


def _batches(calls: Sequence[ToolCall], reading: Collection[str]) -> Iterator[list[tuple[int, ToolCall]]]:
    """Numbered calls that may run at the same time: consecutive ones that read, or a single other one."""
    for reads, group in groupby(enumerate(calls), lambda numbered: numbered[1].name in reading):
        batch = list(group)
        yield from [batch] if reads else ([one] for one in batch)


def _shortened(result: Result) -> str:
    text = result.text
    if result.images:
        text += f"\n[{len(result.images)} images are not shown to agents]"
    kept = head_bytes(text, REPLY_BYTES)
    if len(kept) < len(text):
        return f"{kept}\n[{len(text) - len(kept)} characters more are not shown; ask for less in one call]"
    return text


def _refusal(call: ToolCall, why: str) -> ToolReply:
    return ToolReply(id=call.id, name=call.name, text=why, is_error=True)
