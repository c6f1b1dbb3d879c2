"""The conversation of an agent, and its encoding as JSON."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Literal

from pydantic import TypeAdapter

from mcp_toolserver.capabilities.model import Message, ModelTurn, ToolReply, UserText

Role = Literal["user", "agent", "tools"]

NOT_KEPT = "[The conversation grew too long to keep this result.]"

INTERRUPTED = "The agent was stopped before this call ended. It may have had an effect."


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
        self.size += size_of(message)

    def drop_results(self, most: int) -> None:
        """Drop the texts of results, the oldest first, until the conversation has at most `most` bytes."""
        for at, message in enumerate(self.messages[:-1]):
            if self.size <= most:
                return
            if isinstance(message, tuple):
                shorter = tuple(replace(one, text=min(one.text, NOT_KEPT, key=len)) for one in message)
                self.size += size_of(shorter) - size_of(message)
                self.messages[at] = shorter

    def said(self) -> str:
        """The last text of the agent."""
        texts = (one.text for one in reversed(self.messages) if isinstance(one, ModelTurn))
        return next((text for text in texts if text.strip()), "")


def size_of(message: Message) -> int:
    """Bytes of the text of a message."""
    if isinstance(message, tuple):
        return sum(len(reply.text.encode()) + len(reply.name) for reply in message)
    calls = message.calls if isinstance(message, ModelTurn) else ()
    arguments = sum(len(json.dumps(call.arguments)) + len(call.name) for call in calls)
    return len(message.text.encode()) + arguments


def role(message: Message) -> Role:
    """Who sent a message."""
    return "user" if isinstance(message, UserText) else "agent" if isinstance(message, ModelTurn) else "tools"


def cleaned(message: Message) -> Message:
    """The message with `?` for halves of surrogate pairs, which neither a store nor a model takes."""
    match message:
        case UserText():
            return replace(message, text=_clean(message.text))
        case ModelTurn():
            calls = tuple(
                replace(
                    call,
                    id=_clean(call.id),
                    name=_clean(call.name),
                    arguments=json.loads(_clean(json.dumps(call.arguments, ensure_ascii=False))),
                )
                for call in message.calls
            )
            return replace(message, text=_clean(message.text), calls=calls)
        case _:
            return tuple(
                replace(one, id=_clean(one.id), name=_clean(one.name), text=_clean(one.text))
                for one in message
            )


def encoded(message: Message) -> str:
    """The content of a cleaned message as JSON."""
    content: str = _adapter(role(message)).dump_json(message).decode()
    return content


def decoded(sender: Role, content: str) -> Message:
    """The message of which `encoded` made `content`."""
    return _adapter(sender).validate_json(content)


def unanswered(messages: Sequence[Message]) -> tuple[ToolReply, ...]:
    """Replies for the calls of an agent that was stopped while they ran."""
    last = messages[-1] if messages else None
    if not isinstance(last, ModelTurn):
        return ()
    return tuple(
        ToolReply(id=call.id, name=call.name, text=INTERRUPTED, is_error=True) for call in last.calls
    )


def transcript(about: dict[str, object], messages: Sequence[tuple[Role, str]]) -> str:
    """An agent and its encoded conversation as one JSON document."""
    found = [{"role": sender, "content": json.loads(content)} for sender, content in messages]
    return json.dumps({**about, "messages": found}, indent=1)


def _clean(text: str) -> str:
    return text.encode(errors="replace").decode()


@cache
def _adapter(sender: Role) -> TypeAdapter[Message]:
    """Made on first use, because it takes milliseconds."""
    return TypeAdapter[Message](
        {"user": UserText, "agent": ModelTurn, "tools": tuple[ToolReply, ...]}[sender]
    )
