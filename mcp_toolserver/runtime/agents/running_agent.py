"""An agent, from its start until it and all that it started have ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import anyio

from mcp_toolserver.capabilities.agents import AgentState
from mcp_toolserver.capabilities.model import Model, ModelTurn
from mcp_toolserver.errors import Conflict, ToolError
from mcp_toolserver.runtime.agents.loop import Conversation, Loop
from mcp_toolserver.runtime.agents.spending import Spending
from mcp_toolserver.text.agents.conversation import unanswered
from mcp_toolserver.text.lines.truncate import head_bytes

if TYPE_CHECKING:
    from mcp_toolserver.capabilities.agents import AgentStatus
    from mcp_toolserver.capabilities.call_scope import Report
    from mcp_toolserver.pipeline.nested_calls import NestedCalls
    from mcp_toolserver.runtime.background import Running
    from mcp_toolserver.stores.agents import AgentRecord, StoredAgents

log = logging.getLogger(__name__)

MAX_UNREAD = 50
"""Messages that wait for the next turn of an agent."""

MAX_NOTES = 20
"""Messages of an agent to the client that started it."""

RESULT_BYTES = 200_000
"""Maximum bytes of an agent's result."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """What an agent starts with."""

    record: AgentRecord
    """With what it used in earlier runs."""
    conversation: Conversation
    """Its last message is the task."""
    stored: int
    """Messages of the conversation that are stored already."""
    model: Model
    model_name: str
    calls: NestedCalls
    system: str
    seconds: float
    """How long this run may take."""
    spending: Spending


class RunningAgent:
    """One run of an agent.

    Args:
        report: receives each step, as long as somebody waits for the agent.
        clean_up: ends everything that the agent started, and waits until it is gone; returns a sentence for
            who started it, or nothing.
        changed: is called after each step.
    """

    def __init__(
        self,
        start: Start,
        store: StoredAgents,
        *,
        report: Report,
        clean_up: Callable[[], Awaitable[str]],
        changed: Callable[[], None],
    ) -> None:
        self.spending = start.spending
        self.record = start.record
        self.task: Running
        """Its work, once it was started."""
        self.error: ToolError | None = None
        """Why its model did not answer."""
        self._start = start
        self._store = store
        self._stored = start.stored
        self._report: Report | None = report
        self._clean_up = clean_up
        self._changed = changed
        self._began = time.monotonic()
        self._step = ""
        self._inbox: list[str] = []
        self._is_over = False
        """Whether it has no next turn."""
        self._scope = anyio.CancelScope()
        self._news = anyio.Event()
        self._ended = anyio.Event()
        self._loop = Loop(
            model=start.model,
            calls=start.calls.reporting(self._report_call),
            spending=start.spending,
            system=start.system,
            agent_type=start.record.type,
            model_name=start.model_name,
            inbox=self._received,
            save=self._save,
            step=self._note,
        )

    @property
    def has_ended(self) -> bool:
        """Whether it and all that it started have ended."""
        return self._ended.is_set()

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
                self._ended.set()
                self._announce()

    async def _conclude(self, status: AgentStatus, detail: str) -> None:
        try:
            self._add_note(await self._clean_up())
        finally:
            if replies := unanswered(self._start.conversation.messages):
                self._start.conversation.add(replies)
            self._step = ""
            self.record = replace(self._current(), status=status, detail=detail)
        try:
            await self._save()
        except ToolError as error:
            log.warning("the end of %s could not be stored: %s", self.record.handle, error)

    async def _run(self) -> tuple[AgentStatus, str]:
        with self._scope, anyio.move_on_after(self._start.seconds):
            try:
                limit = await self._loop.run(self._start.conversation)
            except ToolError as error:
                self.error = error
                return "failed", str(error)
            except Exception:
                log.exception("%s failed", self.record.handle)
                return "failed", "an error inside the server, which its log describes"
            return ("limited", limit) if limit else ("finished", "")
        if self._scope.cancel_called:
            return "stopped", ""
        return "limited", f"it reached the limit of {self._start.seconds:g} s"

    async def stop(self) -> None:
        """End it, and wait until all that it started is gone, even when the caller is cancelled."""
        self._scope.cancel()
        with anyio.CancelScope(shield=True):
            # Unlike `_ended`, it also ends if the server began to end before the agent ran.
            await self.task.ended()

    def detach(self) -> None:
        """Report no more steps: nobody waits for the agent."""
        self._report = None

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
        if self.record.notes.count("\n") >= MAX_NOTES:
            raise Conflict(
                f"The leader has {MAX_NOTES} messages already. Put the rest into your last answer."
            )
        self._add_note(text)
        self._announce()

    def _add_note(self, text: str) -> None:
        if line := " ".join(text.split()):
            self.record = replace(self.record, notes=f"{self.record.notes}{line}\n")

    async def wait(self, seconds: float, *, for_step: bool = False) -> None:
        """Wait for the end, or for the next step, at most `seconds`."""
        with anyio.move_on_after(seconds):
            while not self.has_ended:
                await self._news.wait()
                if for_step:
                    return

    def state(self) -> AgentState:
        """How it is now."""
        return state_of(self._current(), step=self._step)

    def _current(self) -> AgentRecord:
        """The record with what this run used and said."""
        if self.has_ended:
            return self.record
        before, spending = self._start.record, self.spending
        return replace(
            self.record,
            text=_said(self._start.conversation),
            turns=before.turns + spending.turns,
            tokens=before.tokens + spending.tokens,
            cost=None if before.cost is None or spending.cost is None else before.cost + spending.cost,
            seconds=before.seconds + time.monotonic() - self._began,
            size=self._start.conversation.size,
            updated=time.time(),
        )

    async def _save(self) -> None:
        messages = self._start.conversation.messages
        await self._store.save(self._current(), messages[self._stored :], at=self._stored)
        self._stored = len(messages)

    async def _note(self, message: str) -> None:
        self._step = message
        self._announce()
        await self._report_call(f"turn {self.spending.turns + 1}: {message}")

    async def _report_call(self, message: str) -> None:
        if self._report is not None:
            await self._report(f"{self.record.name or self.record.description}: {message}")

    def _received(self) -> Sequence[str]:
        taken, self._inbox = self._inbox, []
        return taken

    def _announce(self) -> None:
        self._news.set()
        self._news = anyio.Event()
        self._changed()


def ended_error(record: AgentRecord) -> Conflict:
    """The error of a message to an agent that has ended."""
    return Conflict(
        f"{record.name or record.handle} has ended and reads no messages. To go on with it, call Agent with "
        f"resume: {record.handle}."
    )


def state_of(record: AgentRecord, *, step: str = "") -> AgentState:
    """The state of an agent with this record."""
    return AgentState(
        handle=record.handle,
        name=record.name,
        type=record.type,
        description=record.description,
        status=record.status,
        detail=record.detail,
        text=record.text,
        notes=tuple(record.notes.splitlines()),
        step=step,
        turns=record.turns,
        tokens=record.tokens,
        cost=record.cost,
        seconds=record.seconds,
    )


def _said(conversation: Conversation) -> str:
    """The last text of the agent."""
    texts = (one.text for one in reversed(conversation.messages) if isinstance(one, ModelTurn))
    last = next((text for text in texts if text.strip()), "")
    kept = head_bytes(last, RESULT_BYTES)
    return kept if kept == last else f"{kept}\n[{len(last) - len(kept)} characters more were not kept]"
