"""Content that fixtures hand out, and fixtures that ask the client for something, in the way of each era."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata

from tests.notebook.notebooks import PIXEL as PNG

Context = ServerRequestContext[Any, Any]
Asked = mcp.InputRequiredResult
Answered = mcp.InputResponseRequestParams
Input = mcp.ElicitRequest | mcp.CreateMessageRequest | mcp.ListRootsRequest

WAV = "UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAgICAgICAgA=="
"""A moment of silence."""
IMAGE = mcp.ImageContent(type="image", data=PNG, mime_type="image/png")
AUDIO = mcp.AudioContent(type="audio", data=WAV, mime_type="audio/wav")


def words(text: str) -> mcp.TextContent:
    return mcp.TextContent(type="text", text=text)


def embedded(uri: str, text: str, mime_type: str = "text/plain") -> mcp.EmbeddedResource:
    contents = mcp.TextResourceContents(uri=uri, text=text, mime_type=mime_type)
    return mcp.EmbeddedResource(type="resource", resource=contents)


EMBEDDED = embedded("test://embedded-resource", "What a tool embeds.")
MIXED = (
    words("Of each kind one:"),
    IMAGE,
    embedded("test://mixed", json.dumps({"test": "data", "value": 123}), "application/json"),
)


def result(*content: mcp.ContentBlock, is_error: bool = False) -> mcp.CallToolResult:
    return mcp.CallToolResult(content=list(content), is_error=is_error)


def form(message: str, required: Sequence[str] = (), **properties: Mapping[str, Any]) -> mcp.ElicitRequest:
    """A question to the user, with a form for the answer."""
    schema = {"type": "object", "properties": properties, "required": list(required or properties)}
    return mcp.ElicitRequest(params=mcp.ElicitRequestFormParams(message=message, requested_schema=schema))


def prompt(text: str, max_tokens: int = 100) -> mcp.CreateMessageRequest:
    message = mcp.SamplingMessage(role="user", content=words(text))
    return mcp.CreateMessageRequest(
        params=mcp.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    )


TEXT = {"type": "string"}
NAME = form("What is your name?", name=TEXT)
SURE = form("Are you sure?", ok={"type": "boolean"})
DEFAULTS = form(
    "Change what is not right.",
    required=["name"],
    name={"type": "string", "default": "John Doe"},
    age={"type": "integer", "default": 30},
    score={"type": "number", "default": 95.5},
    status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    verified={"type": "boolean", "default": True},
)
ENUMS = form(
    "Choose.",
    required=["untitledSingle"],
    untitledSingle={"type": "string", "enum": ["option1", "option2", "option3"]},
    titledSingle={
        "type": "string",
        "oneOf": [{"const": f"value{n}", "title": f"No. {n}"} for n in (1, 2)],
    },
    legacyEnum={"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["One", "Two"]},
    untitledMulti={"type": "array", "items": {"type": "string", "enum": ["option1", "option2"]}},
    titledMulti={
        "type": "array",
        "items": {"anyOf": [{"const": f"value{n}", "title": f"No. {n}"} for n in (1, 2)]},
    },
)

STATE = "what the server wants to know again"

ROUNDS: Mapping[str, Sequence[tuple[Mapping[str, Input], str | None]]] = {
    "test_input_required_result_elicitation": [({"user_name": NAME}, None)],
    "test_streaming_elicitation": [({"user_name": NAME}, None)],
    "test_input_required_result_sampling": [
        ({"capital_question": prompt("What is the capital of France?")}, None)
    ],
    "test_input_required_result_list_roots": [({"client_roots": mcp.ListRootsRequest()}, None)],
    "test_input_required_result_request_state": [({"confirm": SURE}, STATE)],
    "test_input_required_result_tampered_state": [({"confirm": SURE}, STATE)],
    "test_input_required_result_multiple_inputs": [
        (
            {
                "user_name": NAME,
                "greeting": prompt("Generate a greeting", 50),
                "client_roots": mcp.ListRootsRequest(),
            },
            STATE,
        )
    ],
    "test_input_required_result_multi_round": [
        ({"step1": form("Step 1: your name?", name=TEXT)}, "round 1"),
        ({"step2": form("Step 2: your favorite color?", color=TEXT)}, "round 2"),
    ],
    "test_input_required_result_prompt": [({"user_context": form("Which context?", context=TEXT)}, None)],
}
"""By fixture what it asks in each round, and the state that travels along."""


def asked(name: str, params: Answered) -> Asked | None:
    """What the client has to answer next; None when it has answered all."""
    rounds, answers = ROUNDS[name], params.input_responses or {}
    done = next(
        (
            number
            for number, (requests, state) in enumerate(rounds, 1)
            if state == params.request_state and requests.keys() <= answers.keys()
        ),
        0,
    )
    if done == len(rounds):
        return None
    requests, state = rounds[done]
    return Asked(input_requests=dict(requests), request_state=state)


_KINDS: Mapping[str, Callable[[mcp.ClientCapabilities], object]] = {
    "elicitation": lambda declared: declared.elicitation,
    "sampling": lambda declared: declared.sampling,
}


def within_capabilities(context: Context, params: Answered) -> Asked | None:
    """Questions of those kinds only that the client has declared."""
    if params.input_responses:
        return None
    declared = context.session.client_capabilities or mcp.ClientCapabilities()
    questions: dict[str, Input] = {"elicitation": NAME, "sampling": prompt("Say hello")}
    return Asked(
        input_requests={kind: question for kind, question in questions.items() if _KINDS[kind](declared)}
    )


def need(context: Context, kind: str) -> None:
    """Raises: MCPError: the client has not declared that it can be asked this kind of question."""
    declared = context.session.client_capabilities
    if declared is None or _KINDS[kind](declared) is None:
        needed = {"requiredCapabilities": {kind: {}}}
        raise MCPError(mcp.MISSING_REQUIRED_CLIENT_CAPABILITY, f"The client has no {kind}.", needed)


async def over_the_channel(context: Context, request: mcp.ElicitRequest) -> mcp.CallToolResult:
    """Ask a client with a handshake, and say what it answered."""
    metadata = ServerMessageMetadata(related_request_id=context.request_id)
    answer = await context.session.send_request(request, mcp.ElicitResult, metadata=metadata)
    return result(words(f"{answer.action}: {answer.content}"))


async def sampled(context: Context, text: str) -> mcp.CallToolResult:
    metadata = ServerMessageMetadata(related_request_id=context.request_id)
    answer = await context.session.send_request(prompt(text), mcp.CreateMessageResult, metadata=metadata)
    return result(words(f"LLM response: {answer.content}"))
