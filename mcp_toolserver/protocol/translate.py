"""Between our values and MCP's: tools, results, and what a client of each age can read."""

import base64
from collections.abc import Iterator

import mcp_types as mcp
from mcp_types.version import is_version_at_least

from mcp_toolserver.capabilities import Capability, Permission
from mcp_toolserver.dispatch import Dispatcher, Result
from mcp_toolserver.registry import Entry

TOOL = "mcp-toolserver/tool"
METADATA = "mcp-toolserver/metadata"
OUTPUT_URI = "toolserver://output/"

MODERN = "2026-07-28"
"""The first stateless revision; every older one opens with a handshake."""

_LINKS_SINCE = "2025-06-18"
"""Resource links, titles and structured content came with this revision."""

_OPEN_WORLD = frozenset({Capability.PROCESS})
"""What reaches beyond this machine's files, unless the kernel stops it."""


def tool(entry: Entry, level: Permission) -> mcp.Tool:
    """What a client is told of a tool; `level` is what a call needs on this host."""
    spec = entry.spec
    # What only reads may still be dear, because what it reads from is; what is dear may be made harmless.
    reads = Permission.READ_ONLY in (level, spec.permission)
    return mcp.Tool(
        name=spec.name,
        description=spec.description.strip(),
        input_schema=entry.schema,
        output_schema=entry.output_schema,
        annotations=mcp.ToolAnnotations(
            read_only_hint=reads,
            destructive_hint=spec.destructive and not reads,
            idempotent_hint=spec.idempotent or reads,
            open_world_hint=not reads and bool(spec.needs & _OPEN_WORLD),
        ),
        _meta={TOOL: {"permission": level.flag, "kind": spec.kind}},
    )


def tools(dispatcher: Dispatcher) -> list[mcp.Tool]:
    """Everything this server offers, by name."""
    return [tool(entry, dispatcher.level(entry)) for entry in dispatcher.listed()]


def result(answer: Result, version: str) -> mcp.CallToolResult:
    """An answer in the form that a client of this protocol version reads."""
    return mcp.CallToolResult(
        content=list(_content(answer, links=is_version_at_least(version, _LINKS_SINCE))),
        structured_content=answer.data if is_version_at_least(version, _LINKS_SINCE) else None,
        is_error=answer.error is not None,
        _meta={METADATA: answer.metadata()},
    )


def _content(answer: Result, *, links: bool) -> Iterator[mcp.ContentBlock]:
    yield mcp.TextContent(text=answer.text)
    for image in answer.images:
        yield mcp.ImageContent(data=base64.b64encode(image.data).decode(), mime_type=image.mime_type)
    if links and answer.spill is not None:
        yield mcp.ResourceLink(
            name="full output",
            uri=OUTPUT_URI + answer.spill.handle,
            mime_type="text/plain",
            size=answer.spill.size,
        )
