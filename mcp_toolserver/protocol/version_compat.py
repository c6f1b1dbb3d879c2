"""Removes the fields of results that older protocol revisions do not define; pure.

The SDK sends the fields of 2025-11-25 to every client of the handshake protocol. A strict client of an older
revision rejects unknown fields. The text of a result is complete without them. Audio, new in 2025-03-26, is
missing here because no tool returns it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mcp_types.version import is_version_at_least
from pydantic import JsonValue

HINTS = "2025-03-26"
TITLES = "2025-06-18"
"""Also added resource links and structured results."""
ICONS = "2025-11-25"

YOUNGEST = ICONS
"""Clients from this revision on get every field; the SDK handles the stateless revisions."""


@dataclass(frozen=True, kw_only=True)
class FieldVersions:
    """The revisions that added the fields of an object, or of the objects of a list."""

    since: Mapping[str, str] = field(default_factory=dict[str, str])
    """Fields added later."""
    kinds: Mapping[str, str] = field(default_factory=dict[str, str])
    """Objects added later, by their `type`; they are removed from lists."""
    within: "Mapping[str, FieldVersions]" = field(default_factory=dict[str, "FieldVersions"])
    """Fields that hold such objects."""


_NAMED = {"title": TITLES, "_meta": TITLES, "icons": ICONS}
_NOTED = FieldVersions(since={"lastModified": TITLES})
_BLOCK = FieldVersions(
    since={"_meta": TITLES}, kinds={"resource_link": TITLES}, within={"annotations": _NOTED}
)
_RESOURCE = FieldVersions(since=_NAMED, within={"annotations": _NOTED})

FIELD_VERSIONS: Mapping[str, FieldVersions] = {
    "initialize": FieldVersions(
        within={
            "serverInfo": FieldVersions(
                since={"title": TITLES, "icons": ICONS, "websiteUrl": ICONS, "description": ICONS}
            ),
            "capabilities": FieldVersions(since={"completions": HINTS, "tasks": ICONS}),
        }
    ),
    "tools/list": FieldVersions(
        within={
            "tools": FieldVersions(
                since={**_NAMED, "annotations": HINTS, "outputSchema": TITLES, "execution": ICONS},
            )
        }
    ),
    "tools/call": FieldVersions(since={"structuredContent": TITLES}, within={"content": _BLOCK}),
    "resources/list": FieldVersions(within={"resources": _RESOURCE}),
    "resources/templates/list": FieldVersions(within={"resourceTemplates": _RESOURCE}),
    "resources/read": FieldVersions(within={"contents": FieldVersions(since={"_meta": TITLES})}),
    "prompts/list": FieldVersions(
        within={
            "prompts": FieldVersions(
                since=_NAMED, within={"arguments": FieldVersions(since={"title": TITLES})}
            )
        }
    ),
    "prompts/get": FieldVersions(within={"messages": FieldVersions(within={"content": _BLOCK})}),
}
"""By method, the result. Fields that are not listed exist in every revision."""


def downgrade(method: str, result: dict[str, JsonValue], version: str) -> dict[str, JsonValue]:
    """The result of `method` with only the fields that this protocol version defines."""
    if method not in FIELD_VERSIONS or is_version_at_least(version, YOUNGEST):
        return result
    return _fields(result, FIELD_VERSIONS[method], version)


def _fields(found: dict[str, JsonValue], shape: FieldVersions, version: str) -> dict[str, JsonValue]:
    return {
        name: _fit(value, shape.within[name], version) if name in shape.within else value
        for name, value in found.items()
        if name not in shape.since or is_version_at_least(version, shape.since[name])
    }


def _fit(value: JsonValue, shape: FieldVersions, version: str) -> JsonValue:
    if isinstance(value, list):
        return [_fit(item, shape, version) for item in value if _is_known(item, shape, version)]
    return _fields(value, shape, version) if isinstance(value, dict) else value


def _is_known(item: JsonValue, shape: FieldVersions, version: str) -> bool:
    kind = item.get("type") if isinstance(item, dict) else None
    since = shape.kinds.get(kind) if isinstance(kind, str) else None
    return since is None or is_version_at_least(version, since)
