"""Translates a turn of a model to `sampling/createMessage` and back.

A client with a handshake is asked over the open connection, while the call runs; for others see `rounds`.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import anyio
import mcp_types as mcp
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import is_version_at_least

from mcp_toolserver.capabilities.model import Message, ModelRequest, ModelTurn, ToolCall, ToolReply, UserText
from mcp_toolserver.errors import TimedOut, Unavailable
from mcp_toolserver.protocol.translate import Context

TURN_SECONDS = 600.0
"""How long a client may take for a turn, in which its user may have to approve."""

NO_REQUEST = (
    "The client's model answers only while the client waits for the call that uses it. Start the agent again "
    "without run_in_background, or ask the operator to configure a model in [agent]."
)

_TOOLS_SINCE = "2025-11-25"
"""The revision that added tools to sampling."""

_CHARACTERS_OF_TOKEN = 4
"""Clients do not say how many tokens a turn took, so the count is an estimate."""

LAST_TURN = (
    "This is your last turn, and you cannot call tools in it. Answer with what you have found and done, "
    "and say what is left."
)
"""Added to the system prompt of a turn after which the client would not answer again."""

Sampled = mcp.CreateMessageResult | mcp.CreateMessageResultWithTools


def declares(capabilities: mcp.ClientCapabilities | None, version: str) -> bool:
    """Whether a client offers its model with tools."""
    sampling = capabilities and capabilities.sampling
    return bool(sampling and sampling.tools is not None) and is_version_at_least(version, _TOOLS_SINCE)


def create_message(request: ModelRequest, *, last: bool = False) -> mcp.CreateMessageRequest:
    """The request for a turn; one without tools if it is the `last`."""
    system = f"{request.system}\n\n{LAST_TURN}" if last else request.system
    tools = [
        mcp.Tool(name=tool.name, description=tool.description, input_schema=dict(tool.schema))
        for tool in request.tools
    ]
    return mcp.CreateMessageRequest(
        params=mcp.CreateMessageRequestParams(
            messages=list(_messages(request.messages)),
            system_prompt=system or None,
            max_tokens=request.max_tokens,
            tools=None if last or not tools else tools,
            model_preferences=mcp.ModelPreferences(hints=[mcp.ModelHint(name=request.model)])
            if request.model
            else None,
        )
    )


def turn_of(result: Sampled, request: ModelRequest, *, last: bool = False) -> ModelTurn:
    """The turn that a client answered; calls of the `last` one are dropped.

    Raises:
        Unavailable: it holds neither text nor calls.
    """
    content = result.content if isinstance(result.content, list) else [result.content]
    text = "".join(block.text for block in content if isinstance(block, mcp.TextContent))
    calls = tuple(
        ToolCall(id=block.id, name=block.name, arguments=block.input)
        for block in content
        if isinstance(block, mcp.ToolUseContent) and not last
    )
    if not text and not calls:
        raise Unavailable("The client's model answered without text and without a call. Try again.")
    sent = len(request.system) + sum(map(_size, request.messages))
    received = len(text) + sum(len(json.dumps(call.arguments)) for call in calls)
    return ModelTurn(
        text=text,
        calls=calls,
        input_tokens=sent // _CHARACTERS_OF_TOKEN,
        output_tokens=received // _CHARACTERS_OF_TOKEN,
    )


@dataclass(frozen=True)
class BackChannelModel:
    """Implements `Model` for the time of one request."""

    context: Context
    is_open: Callable[[], bool]
    """Whether the request is not answered yet; afterwards no turn is possible."""

    async def turn(self, request: ModelRequest) -> ModelTurn:
        if not self.is_open():
            raise Unavailable(NO_REQUEST)
        asked = create_message(request)
        result_type = mcp.CreateMessageResultWithTools if asked.params.tools else mcp.CreateMessageResult
        try:
            with anyio.fail_after(TURN_SECONDS):
                result = await self.context.session.send_request(
                    asked,
                    result_type,
                    metadata=ServerMessageMetadata(related_request_id=self.context.request_id),
                )
        except TimeoutError:
            raise not_answered() from None
        except (MCPError, ValueError):
            raise declined() from None
        return turn_of(result, request)


def declined() -> Unavailable:
    return Unavailable(
        "The client did not let its model answer; its user may have declined. Do the work without an "
        "agent, or ask the user."
    )


def not_answered() -> TimedOut:
    return TimedOut(f"The client's model did not answer within {TURN_SECONDS:g} s.")


def _size(message: Message) -> int:
    match message:
        case UserText() | ModelTurn():
            return len(message.text)
        case _:
            return sum(len(reply.text) for reply in message)


def _messages(messages: Sequence[Message]) -> Iterator[mcp.SamplingMessage]:
    for message in messages:
        match message:
            case UserText():
                yield mcp.SamplingMessage(role="user", content=_text(message.text))
            case ModelTurn():
                content: list[mcp.SamplingMessageContentBlock] = [_text(message.text)] if message.text else []
                for call in message.calls:
                    given = call.arguments
                    arguments = {"invalid": given} if isinstance(given, str) else dict(given)
                    content.append(mcp.ToolUseContent(id=call.id, name=call.name, input=arguments))
                if content:
                    yield mcp.SamplingMessage(role="assistant", content=content)
            case _:
                yield mcp.SamplingMessage(role="user", content=[_reply(reply) for reply in message])


def _reply(reply: ToolReply) -> mcp.ToolResultContent:
    return mcp.ToolResultContent(
        tool_use_id=reply.id, content=[_text(reply.text)], is_error=reply.is_error or None
    )


def _text(text: str) -> mcp.TextContent:
    return mcp.TextContent(text=text)
