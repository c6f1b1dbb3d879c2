"""Translates tools and results to MCP, in the form that each protocol version knows.

The SDK sends the fields of 2025-11-25 to every client of the handshake protocol. A strict client of an older
revision rejects unknown fields. The text of a result is complete without them. Audio, new in 2025-03-26, is
missing here because no tool returns it.
"""

import base64
import re
from collections.abc import Mapping, Set
from typing import Any

import mcp_types as mcp
from mcp.server.context import ServerRequestContext
from mcp_types.version import is_version_at_least
from pydantic import JsonValue

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.pipeline.registry import Entry

METADATA = "mcp-toolserver/metadata"
OUTPUT_URI = "toolserver://output/"

UPSTREAMS_URI = "toolserver://upstreams/"
"""Begins the addresses of resources of upstream servers; the name of a server and its address follow."""

MODERN = "2026-07-28"
"""The first stateless revision; every older one opens with a handshake."""

HINTS = "2025-03-26"
TITLES = "2025-06-18"
"""Also added resource links and structured results."""
ICONS = "2025-11-25"

YOUNGEST = ICONS
"""Clients from this revision on get every field; the SDK handles the stateless revisions."""

Context = ServerRequestContext[Any, Any]
"""A request and its client."""

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")

_STARTING = frozenset({Capability.PROCESS, Capability.LANGUAGES})
"""Capabilities that start external programs."""


def _of(place: str, **since: str) -> Mapping[str, str]:
    return {f"{place}.{name}": version for name, version in since.items()}


_NAMED = {"title": TITLES, "_meta": TITLES, "icons": ICONS}

_SINCE: Mapping[str, Mapping[str, str]] = {
    "initialize": {
        **_of("serverInfo", title=TITLES, icons=ICONS, websiteUrl=ICONS, description=ICONS),
        **_of("capabilities", completions=HINTS, tasks=ICONS),
    },
    "tools/list": _of("tools", **_NAMED, annotations=HINTS, outputSchema=TITLES, execution=ICONS),
    "tools/call": {
        "structuredContent": TITLES,
        "content[resource_link]": TITLES,
        **_of("content", _meta=TITLES),
        **_of("content.annotations", lastModified=TITLES),
    },
    "resources/list": {
        **_of("resources", **_NAMED),
        **_of("resources.annotations", lastModified=TITLES),
    },
    "resources/templates/list": {
        **_of("resourceTemplates", **_NAMED),
        **_of("resourceTemplates.annotations", lastModified=TITLES),
    },
    "resources/read": _of("contents", _meta=TITLES),
    "prompts/list": {**_of("prompts", **_NAMED), **_of("prompts.arguments", title=TITLES)},
    "prompts/get": {
        **_of("messages.content", _meta=TITLES),
        **_of("messages.content.annotations", lastModified=TITLES),
    },
}
"""By method the revisions that added fields: by their place in the result, where lists count as their items.
`[type]` marks items of a list that were added later. Every revision has the other fields."""


def is_stateless(context: Context) -> bool:
    """Whether a request belongs to the stateless protocol."""
    return is_version_at_least(context.protocol_version, MODERN)


def tool(
    entry: Entry, level: Permission, reaches: frozenset[Capability], *, structured: bool = True
) -> mcp.Tool:
    """The declaration of a tool. `level` is the permission that a call needs on this host; `reaches` are its
    capabilities that go beyond the files of the host. `structured` declares the schema of its data."""
    spec = entry.spec
    reads = only_reads(entry, level, reaches)
    return mcp.Tool(
        name=spec.name,
        title=spec.title or None,
        description=spec.description,
        input_schema=spec.schema,
        output_schema=spec.output_schema if structured else None,
        annotations=mcp.ToolAnnotations(
            read_only_hint=reads,
            destructive_hint=spec.destructive and not reads,
            idempotent_hint=spec.idempotent or reads,
            open_world_hint=bool(reaches) if spec.open_world is None else spec.open_world,
        ),
    )


def only_reads(entry: Entry, level: Permission, reaches: frozenset[Capability]) -> bool:
    """Whether a tool changes nothing, as `readOnlyHint` has it; the arguments are those of `tool`."""
    # What only reads may still be dear, because what it reads from is; what is dear may be made harmless.
    # A command that has a network may change what lies beyond it.
    return Permission.READ_ONLY in (level, entry.spec.own_permission) and not reaches & _STARTING


def tools(dispatcher: Dispatcher, *, samples: bool = False, structured: bool = True) -> list[mcp.Tool]:
    """All listed tools, by name; see `Dispatcher.listed` and `tool`."""
    return [
        tool(entry, dispatcher.level(entry), dispatcher.reach(entry), structured=structured)
        for entry in dispatcher.listed(samples=samples)
    ]


def result(
    answer: Result, version: str, request: Mapping[str, Any] | None = None, *, structured: bool = True
) -> dict[str, JsonValue]:
    """A result in the form of this protocol version, with its data if `structured`.

    It is the JSON of a `CallToolResult`, because the SDK validates JSON anyway. Some clients show `_meta` to
    their model, so it has metadata only where the `_meta` of the `request` traces the call.
    """
    wire: dict[str, JsonValue] = {
        "content": _content(answer),
        "isError": answer.error is not None,
        "resultType": "complete",
    }
    if correlation(request):
        wire["_meta"] = {METADATA: answer.metadata()}
    if structured and answer.data is not None:
        wire["structuredContent"] = answer.data
    return downgrade("tools/call", wire, version)


def correlation(meta: Mapping[str, Any] | None) -> str:
    """Trace and span of the `traceparent` in a request's `_meta`, in W3C's form; empty if none."""
    given = (meta or {}).get("traceparent")
    found = _TRACEPARENT.fullmatch(given) if isinstance(given, str) else None
    if found is None or any(set(part) == {"0"} for part in found.groups()):
        return ""
    return "-".join(found.groups())


def _content(answer: Result) -> list[JsonValue]:
    content: list[JsonValue] = [{"type": "text", "text": answer.text}]
    for image in answer.images:
        data = base64.b64encode(image.data).decode()
        content.append({"type": "image", "data": data, "mimeType": image.mime_type})
    content += [_link(there.name or there.uri, there.uri) for there in answer.resources]
    if (saved := answer.saved_output) is not None:
        uri = OUTPUT_URI + saved.handle
        content.append(_link("full output", uri, mimeType="text/plain", size=saved.size))
    return content


def _link(name: str, uri: str, **more: JsonValue) -> JsonValue:
    return {"type": "resource_link", "name": name, "uri": uri, **more}


def downgrade(method: str, result: dict[str, JsonValue], version: str) -> dict[str, JsonValue]:
    """The result of `method` with only the fields that this protocol version defines."""
    if method not in _SINCE or is_version_at_least(version, YOUNGEST):
        return result
    unknown = {place for place, since in _SINCE[method].items() if not is_version_at_least(version, since)}
    return _fields(result, "", unknown)


def _fields(found: dict[str, JsonValue], place: str, unknown: Set[str]) -> dict[str, JsonValue]:
    return {
        name: _known(value, place + name, unknown)
        for name, value in found.items()
        if place + name not in unknown
    }


def _known(value: JsonValue, place: str, unknown: Set[str]) -> JsonValue:
    if isinstance(value, list):
        return [_known(item, place, unknown) for item in value if f"{place}{_kind(item)}" not in unknown]
    return _fields(value, f"{place}.", unknown) if isinstance(value, dict) else value


def _kind(item: JsonValue) -> str:
    return f"[{item.get('type')}]" if isinstance(item, dict) else "[]"
