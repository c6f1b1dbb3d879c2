"""The loop of an agent: asks the model, runs the calls that it makes, and shows it the results."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from mcp_toolserver.capabilities.model import (
    Message,
    Model,
    ModelRequest,
    ModelTool,
    ModelTurn,
    ToolCall,
    ToolReply,
    UserText,
)
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import UnknownTool
from mcp_toolserver.text.agents.conversation import cleaned
from mcp_toolserver.text.lines.truncate import head_bytes

if TYPE_CHECKING:
    from mcp_toolserver.capabilities.call_scope import Report
    from mcp_toolserver.pipeline.call import Result
    from mcp_toolserver.pipeline.nested_calls import NestedCalls
    from mcp_toolserver.pipeline.registry import Entry
    from mcp_toolserver.runtime.agents.spending import Spending

REPLY_BYTES = 40_000
"""Maximum bytes of the result of one call that the model sees."""

CONVERSATION_BYTES = 4 << 20
"""Maximum bytes of a conversation."""

CALLS = 32
"""Maximum calls of one turn."""

PARALLEL = 8
"""Reading calls of one turn that run at the same time."""


class Conversation:
    """The messages of an agent, and their size."""

    def __init__(self, messages: Sequence[Message] = ()) -> None:
        self.messages: list[Message] = []
        self.size = 0
        """Bytes of text."""
        for message in messages:
            self.add(message)

    def add(self, message: Message) -> None:
        """Append a message, cleaned."""
        message = cleaned(message)
        self.messages.append(message)
        self.size += _size(message)


@dataclass(frozen=True, kw_only=True)
class Loop:
    """Runs one agent."""

    model: Model
    calls: NestedCalls
    spending: Spending
    system: str
    agent_type: str
    model_name: str
    inbox: Callable[[], Sequence[str]]
    """Takes what others have sent to the agent since."""
    save: Callable[[], Awaitable[None]]
    """Stores the conversation; called after each change."""
    step: Report
    """Receives what the agent does next."""

    async def run(self, conversation: Conversation) -> str | None:
        """Continue `conversation` until the model makes no call. Returns the limit that ended it before.

        Raises:
            ToolError: the model does not answer, or the conversation cannot be stored.
        """
        entries = {name: entry for entry in self.calls.entries() for name in _names(entry)}
        tools = tuple(_tool(entry) for entry in self.calls.entries())
        while (limit := self._limit(conversation)) is None:
            for text in self.inbox():
                conversation.add(UserText(text))
            await self.step("waits for its model")
            turn = await self.model.turn(self._request(conversation, tools))
            self.spending.add(turn)
            conversation.add(turn)
            await self.save()
            if turn.calls:
                if limit := self._limit(conversation):
                    return limit
                conversation.add(await self._replies(turn.calls, entries))
                await self.save()
            elif not (received := self.inbox()):
                return None
            else:
                for text in received:
                    conversation.add(UserText(text))
        return limit

    def _limit(self, conversation: Conversation) -> str | None:
        if conversation.size >= CONVERSATION_BYTES:
            return f"its conversation reached the limit of {CONVERSATION_BYTES:,} bytes"
        return self.spending.reached()

    def _request(self, conversation: Conversation, tools: tuple[ModelTool, ...]) -> ModelRequest:
        return ModelRequest(
            system=self.system,
            messages=tuple(conversation.messages),
            tools=tools,
            model=self.model_name,
            agent_type=self.agent_type,
        )

    async def _replies(
        self, calls: Sequence[ToolCall], entries: Mapping[str, Entry]
    ) -> tuple[ToolReply, ...]:
        """Run the calls: consecutive ones that read at the same time, others one after the other."""
        replies: dict[int, ToolReply] = {}
        limiter = anyio.CapacityLimiter(PARALLEL)

        async def run(number: int, call: ToolCall) -> None:
            async with limiter:
                replies[number] = await self._reply(call)

        for batch in _batches(calls[:CALLS], entries):
            await self.step(f"calls {', '.join(call.name[:40] for _, call in batch)}")
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
        return ToolReply(
            id=call.id, name=call.name, text=_shortened(result), is_error=result.error is not None
        )


def _names(entry: Entry) -> tuple[str, ...]:
    return (entry.spec.name, *entry.other_names)


def _tool(entry: Entry) -> ModelTool:
    return ModelTool(name=entry.spec.name, description=entry.spec.description, schema=entry.spec.schema)


def _batches(calls: Sequence[ToolCall], entries: Mapping[str, Entry]) -> Iterator[list[tuple[int, ToolCall]]]:
    """Numbered calls that may run at the same time: consecutive ones that read, or a single other one."""
    batch: list[tuple[int, ToolCall]] = []
    for number, call in enumerate(calls):
        entry = entries.get(call.name)
        if entry is not None and entry.spec.permission is Permission.READ_ONLY:
            batch.append((number, call))
            continue
        if batch:
            yield batch
        batch = []
        yield [(number, call)]
    if batch:
        yield batch


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


def _size(message: Message) -> int:
    match message:
        case UserText():
            return len(message.text.encode())
        case ModelTurn():
            arguments = sum(len(json.dumps(call.arguments)) + len(call.name) for call in message.calls)
            return len(message.text.encode()) + arguments
        case _:
            return sum(len(reply.text.encode()) + len(reply.name) for reply in message)
