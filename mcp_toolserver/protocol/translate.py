"""Between our values and MCP's: tools, results, and what a client of each age can read."""

import base64
from collections.abc import Iterator

import mcp_types as mcp
from pydantic import JsonValue

from mcp_toolserver.capabilities.prices import Capability, Permission
from mcp_toolserver.dispatch import Dispatcher, Result
from mcp_toolserver.protocol.ages import fitted
from mcp_toolserver.registry import Entry

TOOL = "mcp-toolserver/tool"
METADATA = "mcp-toolserver/metadata"
OUTPUT_URI = "toolserver://output/"

MODERN = "2026-07-28"
"""The first stateless revision; every older one opens with a handshake."""

_STARTING = frozenset({Capability.PROCESS, Capability.LANGUAGES})
"""What starts programs that are not ours."""


def tool(entry: Entry, level: Permission, reaches: frozenset[Capability]) -> mcp.Tool:
    """What a client is told of a tool; `level` is what a call needs on this host, and `reaches` what of that
    goes beyond its files."""
    label = entry.label
    # What only reads may still be dear, because what it reads from is; what is dear may be made harmless.
    # A command that has a network may change what lies beyond it.
    reads = Permission.READ_ONLY in (level, label.permission) and not reaches & _STARTING
    return mcp.Tool(
        name=label.name,
        description=label.description.strip(),
        input_schema=label.schema,
        output_schema=label.output_schema,
        annotations=mcp.ToolAnnotations(
            read_only_hint=reads,
            destructive_hint=label.destructive and not reads,
            idempotent_hint=label.idempotent or reads,
            open_world_hint=bool(reaches),
        ),
        _meta={TOOL: {"permission": level.flag, "kind": label.kind}},
    )


def tools(dispatcher: Dispatcher) -> list[mcp.Tool]:
    """Everything this server offers, by name."""
    return [tool(entry, dispatcher.level(entry), dispatcher.reach(entry)) for entry in dispatcher.listed()]


def result(answer: Result, version: str) -> dict[str, JsonValue]:
    """An answer in the form that a client of this protocol version reads.

    It is the JSON of a `CallToolResult`, which the SDK checks against the protocol; models made of it here
    would only be taken apart again for that.
    """
    told: dict[str, JsonValue] = {
        "content": list(_content(answer)),
        "isError": answer.error is not None,
        "resultType": "complete",
        "_meta": {METADATA: answer.metadata()},
    }
    if answer.data is not None:
        told["structuredContent"] = answer.data
    return fitted("tools/call", told, version)


def _content(answer: Result) -> Iterator[dict[str, JsonValue]]:
    yield {"type": "text", "text": answer.text}
    for image in answer.images:
        data = base64.b64encode(image.data).decode()
        yield {"type": "image", "data": data, "mimeType": image.mime_type}
    if answer.spill is not None:
        yield {
            "type": "resource_link",
            "name": "full output",
            "uri": OUTPUT_URI + answer.spill.handle,
            "mimeType": "text/plain",
            "size": answer.spill.size,
        }
