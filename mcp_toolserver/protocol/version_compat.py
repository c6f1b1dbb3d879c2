"""What a client of each age can read: the fields of results, with the revision that brought them; pure.

The SDK sends every client of the handshake era what the youngest of them knows. A strict client of an older
revision refuses what it does not know, so that is left out; the text of a result stands alone without it.
There is no row for audio, which came with 2025-03-26, because no tool here gives any.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mcp_types.version import is_version_at_least
from pydantic import JsonValue

HINTS = "2025-03-26"
TITLES = "2025-06-18"
"""With them came resource links, and results as data."""
ICONS = "2025-11-25"

YOUNGEST = ICONS
"""From this revision on a client gets all there is; the SDK knows what the stateless revisions lack."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """An object, or the objects of a list."""

    since: Mapping[str, str] = field(default_factory=dict[str, str])
    """Fields that were not there from the start."""
    kinds: Mapping[str, str] = field(default_factory=dict[str, str])
    """Objects that were not, by their `type`; in a list they are left out whole."""
    within: "Mapping[str, Shape]" = field(default_factory=dict[str, "Shape"])
    """Fields that are such objects themselves."""


_NAMED = {"title": TITLES, "_meta": TITLES, "icons": ICONS}
_NOTED = Shape(since={"lastModified": TITLES})
_BLOCK = Shape(since={"_meta": TITLES}, kinds={"resource_link": TITLES}, within={"annotations": _NOTED})
_RESOURCE = Shape(since=_NAMED, within={"annotations": _NOTED})

SHAPES: Mapping[str, Shape] = {
    "initialize": Shape(
        within={
            "serverInfo": Shape(
                since={"title": TITLES, "icons": ICONS, "websiteUrl": ICONS, "description": ICONS}
            ),
            "capabilities": Shape(since={"completions": HINTS, "tasks": ICONS}),
        }
    ),
    "tools/list": Shape(
        within={
            "tools": Shape(
                since={**_NAMED, "annotations": HINTS, "outputSchema": TITLES, "execution": ICONS},
            )
        }
    ),
    "tools/call": Shape(since={"structuredContent": TITLES}, within={"content": _BLOCK}),
    "resources/list": Shape(within={"resources": _RESOURCE}),
    "resources/templates/list": Shape(within={"resourceTemplates": _RESOURCE}),
    "resources/read": Shape(within={"contents": Shape(since={"_meta": TITLES})}),
    "prompts/list": Shape(
        within={"prompts": Shape(since=_NAMED, within={"arguments": Shape(since={"title": TITLES})})}
    ),
    "prompts/get": Shape(within={"messages": Shape(within={"content": _BLOCK})}),
}
"""By method, the result; what is not told of here was there from the start."""


def fitted(method: str, result: dict[str, JsonValue], version: str) -> dict[str, JsonValue]:
    """The result of `method` as far as a client of this protocol version knows it."""
    if method not in SHAPES or is_version_at_least(version, YOUNGEST):
        return result
    return _fields(result, SHAPES[method], version)


def _fields(found: dict[str, JsonValue], shape: Shape, version: str) -> dict[str, JsonValue]:
    return {
        name: _fit(value, shape.within[name], version) if name in shape.within else value
        for name, value in found.items()
        if name not in shape.since or is_version_at_least(version, shape.since[name])
    }


def _fit(value: JsonValue, shape: Shape, version: str) -> JsonValue:
    if isinstance(value, list):
        return [_fit(item, shape, version) for item in value if _is_known(item, shape, version)]
    return _fields(value, shape, version) if isinstance(value, dict) else value


def _is_known(item: JsonValue, shape: Shape, version: str) -> bool:
    kind = item.get("type") if isinstance(item, dict) else None
    since = shape.kinds.get(kind) if isinstance(kind, str) else None
    return since is None or is_version_at_least(version, since)
