"""The tools that the suite calls by name, for the server's own registry and dispatcher.

What a tool of this server can do, these do as such: `TOOLS`. Some of the suite's need more than that, such as
audio, embedded resources or a client's model: `Fixture`. They run in the dispatcher like all others, and what
they have for the client is taken along with the result of the call; see `Exchange`.
"""

import base64
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import mcp_types as mcp
from mcp.shared.exceptions import MCPError
from pydantic import ConfigDict

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.errors import Unavailable
from mcp_toolserver.pipeline.registry import Entry
from mcp_toolserver.tool_spec import Args, Image, Output, Runtime, ToolSpec
from tests.conformance import asking
from tests.conformance.asking import Asked, Context, need, result, words

Params = mcp.CallToolRequestParams
Answer = Awaitable[mcp.CallToolResult | Asked]
TEXT: Mapping[str, Any] = {"type": "string"}

DIALECT: Mapping[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"street": TEXT}}},
    "properties": {
        "name": TEXT,
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": TEXT,
        "email": TEXT,
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


class Anything(Args):
    """Whatever the suite sends: it checks what the protocol does with it."""

    model_config = ConfigDict(extra="allow")


@dataclass(kw_only=True)
class Exchange:
    """A call of a fixture on its way through the server."""

    context: Context
    params: Params
    answer: mcp.CallToolResult | Asked | None = None
    """What the client gets in place of the dispatcher's result."""
    error: MCPError | None = None


EXCHANGE: ContextVar[Exchange] = ContextVar("exchange")


@dataclass(frozen=True, kw_only=True)
class Fixture:
    """A tool that needs more of the protocol than this server's tools have."""

    run: Callable[[Context, Params], Answer]
    schema: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The schema of its arguments, without their type."""

    def entry(self, name: str) -> Entry:
        return entry(name, self._within_the_dispatcher, schema=self.schema)

    async def _within_the_dispatcher(self, _: Args, __: Runtime) -> Output:
        exchange = EXCHANGE.get()
        try:
            exchange.answer = await self.run(exchange.context, exchange.params)
        except MCPError as error:
            exchange.error = error
        return Output("The suite gets what the fixture has for it.")


def entry(
    name: str,
    run: Callable[[Any, Runtime], Awaitable[Output]],
    *needs: Capability,
    schema: Mapping[str, Any] | None = None,
) -> Entry:
    """A tool of the suite's, as the registry has tools."""
    spec = ToolSpec(
        name=name,
        description="For the suite.",
        permission=Permission.READ_ONLY,
        needs=frozenset(needs),
        args=Anything,
        run=run,
        kind="other",
        subjects=lambda _: (),
        custom_schema={"type": "object", **(schema or {})},
    )
    return Entry(spec, toolset="suite")


def _always(answer: mcp.CallToolResult) -> Callable[[Context, Params], Answer]:
    async def run(_: Context, __: Params) -> mcp.CallToolResult:
        return answer

    return run


def _asks(name: str) -> Callable[[Context, Params], Answer]:
    async def run(_: Context, params: Params) -> mcp.CallToolResult | Asked:
        return asking.asked(name, params) or result(
            words(f"{params.request_state}: {params.input_responses}")
        )

    return run


def _says(text: str, *images: Image) -> Callable[[Args, Runtime], Awaitable[Output]]:
    async def run(_: Args, __: Runtime) -> Output:
        return Output(text, images=images)

    return run


async def _fails(_: Args, __: Runtime) -> Output:
    raise Unavailable("It fails on purpose.")


async def _progress(_: Args, rt: Runtime) -> Output:
    for done in (0, 50, 100):
        await rt.report(f"{done} of 100")
    return Output("done")


async def _logging(_: Args, rt: Runtime) -> Output:
    for text in ("started", "going on", "completed"):
        await rt.tell(text)
    return Output("logged")


def _forms(request: Callable[[Mapping[str, Any]], mcp.ElicitRequest]) -> Callable[[Context, Params], Answer]:
    """Asks for what `request` makes of the arguments."""
    return lambda context, params: asking.over_the_channel(context, request(params.arguments or {}))


async def _sampling(context: Context, params: Params) -> mcp.CallToolResult:
    return await asking.sampled(context, str((params.arguments or {}).get("prompt")))


async def _needs_sampling(context: Context, _: Params) -> mcp.CallToolResult:
    need(context, "sampling")
    return result(words("The client has sampling."))


async def _capabilities(context: Context, params: Params) -> mcp.CallToolResult | Asked:
    return asking.within_capabilities(context, params) or result(words("answered"))


PICTURE = Image(data=base64.b64decode(asking.PNG), mime_type="image/png")

TOOLS = (
    entry("test_simple_text", _says("A simple text.")),
    entry("test_image_content", _says("A picture.", PICTURE)),
    entry("test_error_handling", _fails),
    entry("test_tool_with_progress", _progress),
    entry("test_tool_with_logging", _logging, Capability.TELL),
    entry("test_logging_tool", _logging, Capability.TELL),
    entry("json_schema_2020_12_tool", _says("valid"), schema=DIALECT),
    entry(
        "test_custom_header",
        _says("The header agrees."),
        schema={"properties": {"region": {**TEXT, "x-mcp-header": "Region"}}, "required": ["region"]},
    ),
)

FIXTURES: Mapping[str, Fixture] = {
    "test_audio_content": Fixture(run=_always(result(asking.AUDIO))),
    "test_embedded_resource": Fixture(run=_always(result(asking.EMBEDDED))),
    "test_multiple_content_types": Fixture(run=_always(result(*asking.MIXED))),
    "test_sampling": Fixture(run=_sampling, schema={"properties": {"prompt": TEXT}, "required": ["prompt"]}),
    "test_elicitation": Fixture(
        run=_forms(lambda given: asking.form(str(given.get("message")), username=TEXT, email=TEXT)),
        schema={"properties": {"message": TEXT}, "required": ["message"]},
    ),
    "test_elicitation_sep1034_defaults": Fixture(run=_forms(lambda _: asking.DEFAULTS)),
    "test_elicitation_sep1330_enums": Fixture(run=_forms(lambda _: asking.ENUMS)),
    "test_missing_capability": Fixture(run=_needs_sampling),
    "test_input_required_result_capabilities": Fixture(run=_capabilities),
    **{name: Fixture(run=_asks(name)) for name in asking.ROUNDS if not name.endswith("_prompt")},
}
