"""The tools that the suite calls by name. They answer as the protocol has it, so no dispatcher sees them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import mcp_types as mcp

from tests.conformance import asking, blocks
from tests.conformance.asking import Asked, Context, need
from tests.conformance.blocks import result, words

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


@dataclass(frozen=True, kw_only=True)
class Fixture:
    """A tool for the suite."""

    run: Callable[[Context, Params], Answer]
    schema: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of its arguments, beside their type."""

    def listed(self, name: str) -> mcp.Tool:
        return mcp.Tool(name=name, description="For the suite.", input_schema=self.whole_schema)

    @property
    def whole_schema(self) -> dict[str, Any]:
        return {"type": "object", **self.schema}


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


async def _progress(context: Context, _: Params) -> mcp.CallToolResult:
    for done in (0, 50, 100):
        await context.session.report_progress(done, 100, f"{done} of 100")
    return result(words("done"))


async def _logging(context: Context, _: Params) -> mcp.CallToolResult:
    for text in ("started", "going on", "completed"):
        await context.session.send_log_message("info", text, related_request_id=context.request_id)
    return result(words("logged"))


async def _sampling(context: Context, params: Params) -> mcp.CallToolResult:
    return await asking.sampled(context, str((params.arguments or {}).get("prompt")))


async def _elicitation(context: Context, params: Params) -> mcp.CallToolResult:
    message = str((params.arguments or {}).get("message"))
    return await asking.over_the_channel(context, asking.form(message, username=TEXT, email=TEXT))


async def _defaults(context: Context, _: Params) -> mcp.CallToolResult:
    return await asking.over_the_channel(context, asking.DEFAULTS)


async def _enums(context: Context, _: Params) -> mcp.CallToolResult:
    return await asking.over_the_channel(context, asking.ENUMS)


async def _needs_sampling(context: Context, _: Params) -> mcp.CallToolResult:
    need(context, "sampling")
    return result(words("The client has sampling."))


async def _capabilities(context: Context, params: Params) -> mcp.CallToolResult | Asked:
    return asking.within_capabilities(context, params) or result(words("answered"))


FIXTURES: Mapping[str, Fixture] = {
    "test_simple_text": Fixture(run=_always(result(words("A simple text.")))),
    "test_image_content": Fixture(run=_always(result(blocks.IMAGE))),
    "test_audio_content": Fixture(run=_always(result(blocks.AUDIO))),
    "test_embedded_resource": Fixture(run=_always(result(blocks.EMBEDDED))),
    "test_multiple_content_types": Fixture(run=_always(result(*blocks.MIXED))),
    "test_error_handling": Fixture(run=_always(result(words("It fails on purpose."), is_error=True))),
    "test_tool_with_progress": Fixture(run=_progress),
    "test_tool_with_logging": Fixture(run=_logging),
    "test_logging_tool": Fixture(run=_logging),
    "test_sampling": Fixture(run=_sampling, schema={"properties": {"prompt": TEXT}, "required": ["prompt"]}),
    "test_elicitation": Fixture(
        run=_elicitation, schema={"properties": {"message": TEXT}, "required": ["message"]}
    ),
    "test_elicitation_sep1034_defaults": Fixture(run=_defaults),
    "test_elicitation_sep1330_enums": Fixture(run=_enums),
    "test_missing_capability": Fixture(run=_needs_sampling),
    "test_input_required_result_capabilities": Fixture(run=_capabilities),
    "json_schema_2020_12_tool": Fixture(run=_always(result(words("valid"))), schema=DIALECT),
    "test_custom_header": Fixture(
        run=_always(result(words("The header agrees."))),
        schema={"properties": {"region": {**TEXT, "x-mcp-header": "Region"}}, "required": ["region"]},
    ),
    **{name: Fixture(run=_asks(name)) for name in asking.ROUNDS if not name.endswith("_prompt")},
}
