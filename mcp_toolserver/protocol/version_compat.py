"""Removes the fields of results that older protocol revisions do not define; pure.

The SDK sends the fields of 2025-11-25 to every client of the handshake protocol. A strict client of an older
revision rejects unknown fields. The text of a result is complete without them. Audio, new in 2025-03-26, is
missing here because no tool returns it.
"""

from collections.abc import Mapping, Set

from mcp_types.version import is_version_at_least
from pydantic import JsonValue

HINTS = "2025-03-26"
TITLES = "2025-06-18"
"""Also added resource links and structured results."""
ICONS = "2025-11-25"

YOUNGEST = ICONS
"""Clients from this revision on get every field; the SDK handles the stateless revisions."""


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
