"""An agent, from its start until it and all that it started have ended.

It asks its model, runs the calls that the model makes, and shows it the results, until it makes none. At a
limit it has one turn without tools, to say what it has done.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Literal

import anyio

from mcp_toolserver.capabilities.model import (
    ConversationTooLong,
    Message,
    Model,
    ModelRequest,
    ModelTool,
    ModelTurn,
    ToolCall,
    ToolReply,
    UserText,
)
from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.errors import Conflict, ToolError, Unavailable, UnknownTool
from mcp_toolserver.runtime.background import ended
from mcp_toolserver.text.agents.compaction import GOAL, KEPT_TURNS, SUMMARISE, WORTH, Context
from mcp_toolserver.text.agents.conversation import Conversation, unanswered
from mcp_toolserver.text.lines.encoding import head_bytes
from mcp_toolserver.text.lines.escape_invisible import visible

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
    from mcp_toolserver.stores.file_history import FileHistories
    from mcp_toolserver.tool_spec import ToolSpec

log = logging.getLogger(__name__)

MAX_UNREAD = 50
"""Messages that wait for the next turn of an agent."""

MAX_UNREAD_CHARACTERS = 100_000

MAX_NOTES = 20
"""Messages of an agent to the client that started it."""

RESULT_BYTES = 200_000
REPLY_BYTES = 40_000
"""Maximum bytes of the result of one call that the model sees."""

CONVERSATION_BYTES = 8 << 20
"""Of a conversation that is kept; the oldest results are dropped from a longer one."""

CALLS = 32
"""Maximum calls of one turn."""

SHORTENED = 3
"""How often requests get shorter because the provider finds them too long."""

CUT_TURNS = 3
"""Turns in a row that are cut at their longest before an agent ends."""

LAST_SECONDS = 60.0
"""How long the turn after a limit may take."""

SUMMARY_BYTES = 32_000
"""Kept of a summary of the conversation."""

_LAST_TURN = (
    "You cannot go on: {limit}. This is your last turn, without tools. Answer with what you have found and "
    "done so far, and what is left to do."
)

_CUT = (
    "Not run: your answer was cut at its limit of {tokens:,} tokens before this call was complete. The same "
    "call would be cut again. Make shorter calls, one a turn: write a long file in parts, the first with "
    "write_file and each of the others with write_file and append: true."
)

_WAITS = "waits for a free place"

_AT_A_LIMIT = "Not run: you have reached a limit."

PARALLEL = 8
"""Calls of one turn that run at the same time."""


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
    entries: Sequence[Entry]
    """The tools that its model sees."""
    system: str
    briefing: Callable[[], Awaitable[str]]
    """Returns the rest of the system prompt."""
    seconds: float
    """How long this run may take, without the wait for a place."""
    spending: Spending
    agents: ServerAgents
    """Those that it is one of."""
    isolation: Isolation | None
    """Its worktree; None if it works in the folders of who started it."""
    report: Report | None
    """Receives each step; None once nobody waits for the agent."""
    histories: FileHistories
    roots: Sequence[str]
    """The folders that it works in."""

    def __post_init__(self) -> None:
        self.task: asyncio.Task[None]
        """Its work, once it was started."""
        self.error: ToolError | None = None
        """Why its model did not answer."""
        self.has_place = False
        """Whether it counts as one of the agents that run at the same time."""
        self.calls = self.calls.reporting(self._report_call)
        self._before = self.record
        self._context: Context
        """That of its model, once its work has begun."""
        self._tools: tuple[ModelTool, ...] = ()
        self._answers = True
        """Whether its model would answer once more."""
        self._newest = self.stored
        """Position of the task of this run."""
        self._began = time.monotonic()
        self._step = ""
        self._inbox: list[str] = []
        self._is_over = False
        """Whether it has no next turn."""
        self._scope = anyio.CancelScope()
        self._news = anyio.Event()
        self.has_unread_notes = False
        """Whether its leader has yet to read some."""
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
        handle = self.record.handle
        try:
            for sentence in self.agents.running_of(handle):
                self._add_note(sentence)
            await self.agents.end_agents_of(handle)
            self.record = self._current()
            if self.record.owner in self.agents.running:
                self.histories.of(self.record.owner).add_changed(*self.histories.changed(handle))
            self._add_note(await self.agents.clean_up(handle, self.isolation))
        finally:
            if replies := unanswered(self.conversation.messages):
                self.conversation.add(replies)
            self._step = ""
            # The history of its files is gone.
            self.record = replace(self._current(), status=status, detail=detail, changed=self.record.changed)
        try:
            await self._save()
        except ToolError as error:
            log.warning("the end of %s could not be stored: %s", self.record.handle, error)

    async def _run(self) -> tuple[AgentStatus, str]:
        with self._scope:
            try:
                await self._save()
                if not self.has_place:
                    await self._note(_WAITS)
                    await self.agents.wait_for_place(self)
                    self._began = time.monotonic()
                self._context = await self._begin()
                limit = await self._work_in_time()
                if limit is not None and self._answers:
                    await self._say_what_is_done(limit)
            except ToolError as error:
                self.error = error
                return "failed", str(error)
            except Exception:
                log.exception("%s failed", self.record.handle)
                return "failed", "an error inside the server, which its log describes"
            return ("finished", "") if limit is None else ("limited", limit)
        return "stopped", ""

    async def _begin(self) -> Context:
        """Finish the system prompt."""
        specs = [entry.spec for entry in self.entries]
        self._tools = tuple(
            [ModelTool(name=one.name, description=one.description, schema=one.schema) for one in specs]
        )
        self.system = f"{self.system}\n\n{await self.briefing()}"
        return Context(
            self.conversation,
            self.model.limits(self.model_name, self.record.type),
            system=self.system,
            tools=json.dumps([vars(tool) for tool in self._tools]),
            newest=self._newest,
        )

    async def _work_in_time(self) -> str | None:
        """See `_work`."""
        with anyio.move_on_after(self.seconds):
            try:
                return await self._work()
            except ConversationTooLong:
                return "its conversation is longer than the model can read"
        return f"it reached the limit of {self.seconds:g} s"

    async def _work(self) -> str | None:
        """Go on until the model makes no call; returns the limit that ended the conversation before."""
        conversation, context, cut_turns = self.conversation, self._context, 0
        kinds = _kinds([entry.spec for entry in self.entries])
        while (limit := self.spending.reached()) is None:
            self._read_inbox()
            await self._note("waits for its model")
            turn = await self._answer(self._next_request)
            self.spending.add(turn)
            conversation.add(turn)
            context.count(turn)
            await self._save()
            if turn.limit:
                self._answers = False
                return turn.limit
            cut_turns = cut_turns + 1 if turn.is_cut else 0
            if cut_turns >= CUT_TURNS or (turn.is_cut and not turn.calls):
                limit = f"its answer was cut at the limit of {context.output:,} tokens"
            if turn.calls:
                why = _AT_A_LIMIT if (limit := limit or self.spending.reached()) else ""
                why = _CUT.format(tokens=context.output) if turn.is_cut else why
                refused = tuple(_refusal(call, why) for call in turn.calls if why)
                conversation.add(refused or await self._replies(turn.calls, kinds))
                await self._save()
            elif not turn.is_cut and not turn.text.strip():
                raise Unavailable("Its model answered nothing. Try again.")
            if limit or not (turn.calls or self._read_inbox()):
                return limit
        return limit

    async def _next_request(self) -> ModelRequest:
        """That for the next turn, with as much of the conversation as the model can read."""
        await self._make_room()
        return self._request(self._context.messages(), self._tools)

    async def _answer(self, request: Callable[[], Awaitable[ModelRequest]]) -> ModelTurn:
        """The answer to a request, which is made again, but shorter, if the provider finds it too long."""
        for _ in range(SHORTENED):
            made = await request()
            try:
                return await self.model.turn(made)
            except ConversationTooLong:
                self._context.shrink()
        return await self.model.turn(await request())

    async def _make_room(self) -> None:
        """Raises: ConversationTooLong: the task and the last turn are too long."""
        context = self._context
        if context.fits():
            return
        if context.leave_out_results(KEPT_TURNS, GOAL) or context.fits():
            return
        await self._sum_up(context.summary_end(KEPT_TURNS, least=WORTH))
        if context.leave_out_results(1):
            return
        await self._sum_up(context.summary_end(1))
        if not context.fits():
            raise ConversationTooLong("The task and the last turn are longer than the model can read.")

    async def _sum_up(self, end: int) -> None:
        """Replace the conversation up to position `end` by a summary, unless that is 0."""
        if end:
            await self._note("sums up its conversation")
            summary = await self._without_tools(end, SUMMARISE)
            self.conversation.add(UserText(head_bytes(summary.text, SUMMARY_BYTES), summary_of=end))

    async def _without_tools(self, end: int, asked: str) -> ModelTurn:
        """Ask something about the conversation up to position `end`.

        Raises:
            ToolError: the model does not answer.
        """

        async def request() -> ModelRequest:
            return self._request((*self._context.in_words(end), UserText(asked)))

        turn = await self._answer(request)
        self.spending.add(turn, is_summary=True)
        if not turn.text.strip():
            raise Unavailable("Its model answered nothing. Try again.")
        return replace(turn, calls=())

    async def _say_what_is_done(self, limit: str) -> None:
        """One turn for what the agent has found and done, which is bounded in time; none if it has done
        nothing."""
        if len(self.conversation.messages) == 1:
            return
        asked = _LAST_TURN.format(limit=limit)
        if replies := unanswered(self.conversation.messages):
            self.conversation.add(replies)
        with anyio.move_on_after(min(LAST_SECONDS, self.seconds)):
            await self._note("says what it has done")
            try:
                turn = await self._without_tools(len(self.conversation.messages), asked)
            except ToolError as error:
                log.info("%s did not say what it has done: %s", self.record.handle, error)
            else:
                self.conversation.add(UserText(asked))
                self.conversation.add(turn)

    def _read_inbox(self) -> bool:
        """Add what others have sent to the conversation; return whether there was anything."""
        received, self._inbox = self._inbox, []
        for text in received:
            self.conversation.add(UserText(text))
        return bool(received)

    def _request(self, messages: tuple[Message, ...], tools: tuple[ModelTool, ...] = ()) -> ModelRequest:
        return ModelRequest(
            system=self.system,
            messages=messages,
            tools=tools,
            model=self.model_name,
            agent_type=self.record.type,
            max_tokens=self._context.output,
        )

    async def _replies(self, calls: Sequence[ToolCall], kinds: Mapping[str, str]) -> tuple[ToolReply, ...]:
        """Run the calls: consecutive ones that read, or that start agents, at the same time, others one after
        the other."""
        replies: dict[int, ToolReply] = {}
        limiter = anyio.CapacityLimiter(PARALLEL)

        async def run(number: int, call: ToolCall) -> None:
            async with limiter:
                replies[number] = await self._reply(call)

        for batch in _batches(calls[:CALLS], kinds):
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
        if len(self._inbox) >= MAX_UNREAD or len(text) + sum(map(len, self._inbox)) > MAX_UNREAD_CHARACTERS:
            raise Conflict(
                f"{self.record.name or self.record.handle} has {len(self._inbox)} messages that it has not "
                "read, and no room for this one. Send it more once it has gone on."
            )
        self._inbox.append(text)

    async def tell_leader(self, text: str) -> None:
        """Add a message for the client that started the agent. Raises: Conflict: there are too many."""
        if len(self.record.notes) >= MAX_NOTES:
            raise Conflict(
                f"The leader has {MAX_NOTES} messages already. Put the rest into your last answer."
            )
        self._add_note(f"message to you: {text}")
        self.has_unread_notes = True
        self._announce()
        await self._report_call(f"message to you: {text}")

    def _add_note(self, text: str) -> None:
        if line := " ".join(text.split()):
            self.record = replace(self.record, notes=(*self.record.notes, line))

    async def wait(self, seconds: float, until: Literal["end", "news", "output"] = "end") -> None:
        """Wait for the end, for a message to its leader (`news`), or for the next step (`output`), at most
        `seconds`."""
        with anyio.move_on_after(seconds):
            while not self.has_ended and not (until == "news" and self.has_unread_notes):
                await self._news.wait()
                if until == "output":
                    return

    def state(self) -> AgentState:
        return replace(self._current(), step=self._step if self.has_place or self.has_ended else _WAITS)

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
            changed=self._changed(),
        )

    def _changed(self) -> tuple[str, ...]:
        """The files that it changed in all its runs."""
        first = f"{next(iter(self.roots), '')}/"
        paths = (path.removeprefix(first) for path in self.histories.changed(self.record.handle))
        shown = (visible(path).replace("\n", "\\n") for path in paths)
        return tuple(dict.fromkeys((*self._before.changed, *shown)))

    async def _save(self) -> None:
        messages = self.conversation.messages
        if self.conversation.size > CONVERSATION_BYTES:
            self.conversation.drop_results(CONVERSATION_BYTES // 2)
            self.stored = 0
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


def _kinds(specs: Sequence[ToolSpec]) -> Mapping[str, str]:
    """All names of the tools whose consecutive calls may run at the same time, with their kind: reading, or
    starting agents."""
    found: dict[str, str] = {}
    for spec in specs:
        kind = "agents" if spec.needs == frozenset({Capability.AGENTS}) else "reads"
        if kind == "agents" or spec.own_permission is Permission.READ_ONLY:
            found |= dict.fromkeys([spec.name, *[alias.name for alias in spec.aliases]], kind)
    return found


def _batches(calls: Sequence[ToolCall], kinds: Mapping[str, str]) -> Iterator[list[tuple[int, ToolCall]]]:
    """Numbered calls that may run at the same time: consecutive ones of a kind, or a single other one."""
    for kind, group in groupby(enumerate(calls), lambda numbered: kinds.get(numbered[1].name)):
        batch = list(group)
        yield from [batch] if kind else ([one] for one in batch)


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
