"""A language model that agents use, one turn at a time.

The caller runs the calls that the model makes and sends the whole conversation with every turn.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pydantic import JsonValue

from mcp_toolserver.errors import Unavailable


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A call of a tool that the model makes."""

    id: str
    """Unique within the conversation; `ToolReply.id` repeats it."""
    name: str
    """As the model wrote it; no such tool may exist."""
    arguments: Mapping[str, JsonValue] | str
    """A text is what the model wrote where that is no JSON object."""


@dataclass(frozen=True)
class UserText:
    """What the user, or who started the agent, says."""

    text: str
    summary_of: int = 0
    """If it sums up what was said before this position of the conversation: later requests hold it instead,
    after the task."""


@dataclass(frozen=True, kw_only=True)
class ToolReply:
    """The result of one call."""

    id: str
    """That of the `ToolCall`."""
    name: str
    text: str
    is_error: bool = False


@dataclass(frozen=True, kw_only=True)
class ModelTurn:
    """What the model answers."""

    text: str
    """Empty if it only makes calls."""
    calls: tuple[ToolCall, ...] = ()
    """Empty if it is done. The next message has a reply for each, in the same order."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    """US dollars; None if it is unknown."""
    is_cut: bool = False
    """Whether it ended at `ModelRequest.max_tokens`, before it was complete."""
    context_tokens: int = 0
    """Tokens of the request and of this answer, those from the provider's cache included; 0 if unknown."""
    limit: str = ""
    """Why the model was asked for a last answer, and answers no more; empty if it does."""


Message = UserText | ModelTurn | tuple[ToolReply, ...]


@dataclass(frozen=True, kw_only=True)
class ModelTool:
    """A tool that the model may call."""

    name: str
    description: str
    schema: Mapping[str, JsonValue]
    """The JSON Schema of its arguments."""


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """A request for the model's next turn."""

    system: str
    """The system prompt."""
    messages: tuple[Message, ...]
    """The conversation so far. It begins with a `UserText`, and its last message is not a `ModelTurn`."""
    tools: tuple[ModelTool, ...] = ()
    model: str = ""
    """The name of a model; empty for the one that is configured for `agent_type`."""
    agent_type: str = ""
    max_tokens: int = 8192
    """Maximum tokens of the answer."""


@dataclass(frozen=True, kw_only=True)
class ModelLimits:
    """How much one request to a model may hold."""

    context: int = 200_000
    """Tokens of a request and its answer together."""
    output: int = 8_192
    """Tokens of an answer."""


class ConversationTooLong(Unavailable):
    """The conversation is longer than the model can read."""


class Model(Protocol):
    """A language model."""

    def limits(self, model: str, agent_type: str) -> ModelLimits:
        """Those of the model that `ModelRequest.model` and `agent_type` choose.

        Raises:
            Unavailable: there is no such model.
        """
        ...

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """The model's next turn.

        Raises:
            ConversationTooLong: the provider says so.
            Unavailable: the model cannot answer; the text says why, without its address or key.
            TimedOut: it did not answer in time.
        """
        ...
