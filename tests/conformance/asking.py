"""Content that fixtures hand out, also as the resources and prompts that the suite reads and gets by name;
and fixtures that ask the client for something, in the way of each era."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata

from mcp_toolserver.protocol.resources.source import Source, Visitor
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


STATIC, BINARY, WATCHED = "test://static-text", "test://static-binary", "test://watched-resource"

_CONTENT: Mapping[str, mcp.TextResourceContents | mcp.BlobResourceContents] = {
    STATIC: mcp.TextResourceContents(uri=STATIC, mime_type="text/plain", text="What a text resource holds."),
    BINARY: mcp.BlobResourceContents(uri=BINARY, mime_type="image/png", blob=PNG),
    WATCHED: mcp.TextResourceContents(uri=WATCHED, mime_type="text/plain", text="As it is now."),
}

RESOURCES = tuple(
    mcp.Resource(uri=uri, name=uri, description="For the suite.", mime_type=found.mime_type)
    for uri, found in _CONTENT.items()
)
TEMPLATE = mcp.ResourceTemplate(
    uri_template="test://template/{id}/data", name="data", description="Data by id.", mime_type="text/plain"
)


class SuiteResources(Source):
    async def listed(self, visitor: Visitor) -> Sequence[mcp.Resource]:
        return RESOURCES

    async def templates(self, visitor: Visitor) -> Sequence[mcp.ResourceTemplate]:
        return (TEMPLATE,)

    async def read(self, uri: str, visitor: Visitor) -> mcp.ReadResourceResult | None:
        if (found := _CONTENT.get(uri)) is not None:
            return mcp.ReadResourceResult(contents=[found])
        if (named := re.fullmatch(r"test://template/([^/]+)/data", uri)) is None:
            return None
        data = json.dumps({"id": named[1], "templateTest": True, "data": f"Data of {named[1]}"})
        return mcp.ReadResourceResult(
            contents=[mcp.TextResourceContents(uri=uri, mime_type="text/plain", text=data)]
        )

    async def watch(self, uri: str, visitor: Visitor) -> bool:
        return uri == WATCHED


def _prompt(name: str, *arguments: str) -> mcp.Prompt:
    return mcp.Prompt(
        name=name,
        description="For the suite.",
        arguments=[mcp.PromptArgument(name=one, description="A value.", required=True) for one in arguments],
    )


PROMPTS = (
    _prompt("test_simple_prompt"),
    _prompt("test_prompt_with_arguments", "arg1", "arg2"),
    _prompt("test_prompt_with_embedded_resource", "resourceUri"),
    _prompt("test_prompt_with_image"),
    _prompt("test_input_required_result_prompt"),
)


class SuitePrompts(Source):
    def prompts(self) -> Sequence[mcp.Prompt]:
        return PROMPTS

    async def get_prompt(
        self, params: mcp.GetPromptRequestParams, visitor: Visitor
    ) -> mcp.GetPromptResult | Asked | None:
        if params.name in ROUNDS and (questions := asked(params.name, params)) is not None:
            return questions
        given = params.arguments or {}
        said: Mapping[str, tuple[mcp.ContentBlock, ...]] = {
            "test_simple_prompt": (words("A simple prompt."),),
            "test_prompt_with_arguments": (words(f"{given.get('arg1')} and {given.get('arg2')}"),),
            "test_prompt_with_embedded_resource": (
                embedded(given.get("resourceUri", ""), "What the prompt embeds."),
                words("Work on the resource above."),
            ),
            "test_prompt_with_image": (IMAGE, words("Look at the picture above.")),
            "test_input_required_result_prompt": (words("With the context that you gave."),),
        }
        if params.name not in said:
            return None
        return mcp.GetPromptResult(
            messages=[mcp.PromptMessage(role="user", content=content) for content in said[params.name]]
        )

    async def complete(self, name: str, argument: str, value: str, visitor: Visitor) -> Sequence[str] | None:
        return None if name not in {one.name for one in PROMPTS} else [f"{value} one", f"{value} two"]
