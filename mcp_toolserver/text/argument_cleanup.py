"""Normalises arguments as real clients send them (JSON in strings, placeholders, names of other servers), and
rejects invalid Unicode.
"""

import json
import math
from collections.abc import Mapping

from pydantic import JsonValue

from mcp_toolserver.text.argument_habits import adapted, own_name

SAFE_INTEGER = 2**53 - 1
"""The largest integer that every JSON implementation carries exactly (RFC 8259, section 6)."""

MAX_DEPTH = 32


def refusal(value: JsonValue, depth: int = 0) -> str | None:
    """Return why no tool may see `value`, or None.

    Refused everywhere: numbers that are not finite or not exact, text that is no valid Unicode or holds NUL,
    and nesting deeper than 32.
    """
    if depth > MAX_DEPTH:
        return f"nested deeper than {MAX_DEPTH} levels"
    match value:
        case str():
            return _text_refusal(value)
        case bool() | None:
            return None
        case int():
            return "an integer beyond 2^53" if abs(value) > SAFE_INTEGER else None
        case float():
            return None if math.isfinite(value) else "a number that is not finite"
        case list():
            return _first_refusal(value, depth)
        case _:
            return _first_refusal([*value.keys(), *value.values()], depth)


def _text_refusal(text: str) -> str | None:
    if "\0" in text:
        return "a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "half of a surrogate pair"
    return None


def _first_refusal(items: list[JsonValue], depth: int) -> str | None:
    return next((why for item in items if (why := refusal(item, depth + 1)) is not None), None)


def lenient(arguments: Mapping[str, JsonValue], schema: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Mend what real clients get wrong, by the tool's JSON Schema; everything else stays for validation.

    An argument that other servers have gets our name and form. A list, object, number or boolean sent as
    JSON text is parsed, and a whole number such as 5.0 is an integer. An optional argument sent as null
    or "" counts as not sent, unless its schema allows an empty string by name (`minLength: 0`). So do
    fields of objects.
    """
    return _lenient(arguments, schema, is_closed=schema.get("additionalProperties") is False)


def _lenient(
    arguments: Mapping[str, JsonValue], schema: Mapping[str, JsonValue], *, is_closed: bool
) -> dict[str, JsonValue]:
    """Do the same for an object in a call. Unless it `is_closed`, no argument of it is unknown."""
    optional = _optional(schema)
    properties = _mapping(schema.get("properties"))
    sent = adapted(arguments, properties) if is_closed else dict(arguments)
    named = {own_name(name, properties, sent): value for name, value in sent.items()}
    if len(named) < len(sent):
        # Two names mean one argument: validation names the one that is not ours.
        named = sent
    return {
        name: _mended(value, _mapping(properties.get(name)), is_closed=is_closed)
        for name, value in named.items()
        if not (name in optional and _is_unsent(value, optional[name]))
    }


def _mended(value: JsonValue, schema: Mapping[str, JsonValue], *, is_closed: bool) -> JsonValue:
    """Mend what lies inside an argument in the same way."""
    match parsed(value, schema.get("type")):
        case dict() as parts if "properties" in schema:
            return _lenient(parts, schema, is_closed=is_closed)
        case list() as items:
            return [_mended(item, _mapping(schema.get("items")), is_closed=is_closed) for item in items]
        case other:
            return other


def placeholders(arguments: Mapping[str, JsonValue], schema: Mapping[str, JsonValue]) -> frozenset[str]:
    """Return the optional arguments sent as 0 or "", by the tool's JSON Schema.

    Clients in strict mode must send every argument. For one they have no value for they send the zero of its
    type, which may also be meant: the caller decides whether it can be.
    """
    optional = _optional(schema)
    return frozenset(
        name for name, value in arguments.items() if name in optional and _is_zero(value, optional[name])
    )


def _optional(schema: Mapping[str, JsonValue]) -> Mapping[str, Mapping[str, JsonValue]]:
    """Return the schema of each optional argument."""
    properties = _mapping(schema.get("properties"))
    required = schema.get("required")
    names = set(properties) - set(required if isinstance(required, list) else ())
    return {name: _mapping(properties[name]) for name in names}


def _is_zero(value: JsonValue, schema: Mapping[str, JsonValue]) -> bool:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value == 0 and schema.get("type") in ("integer", "number")
    return value == "" and schema.get("type") == "string"


def _is_unsent(value: JsonValue, schema: Mapping[str, JsonValue]) -> bool:
    return value is None or (value == "" and schema.get("minLength") != 0)


def argument_type(schema: Mapping[str, JsonValue], name: str) -> JsonValue:
    """Return the type of the argument `name` in the JSON Schema of a tool, None if it says none."""
    return _mapping(_mapping(schema.get("properties")).get(name)).get("type")


def _mapping(value: JsonValue) -> Mapping[str, JsonValue]:
    return value if isinstance(value, dict) else {}


_TYPES: Mapping[JsonValue, tuple[type, ...]] = {
    "array": (list,),
    "object": (dict,),
    "boolean": (bool,),
    "integer": (int, float),
    "number": (int, float),
}
"""What JSON text may stand for, by the type in the schema."""


def parsed(value: JsonValue, kind: JsonValue) -> JsonValue:
    """Parse `value` if it is JSON text for the type `kind` of a JSON Schema, and return it otherwise."""
    if isinstance(value, str) and kind in _TYPES:
        try:
            meant: JsonValue = json.loads(value.lower() if kind == "boolean" else value)
        except (ValueError, RecursionError):
            return value
        if type(meant) not in _TYPES[kind] or refusal(meant):
            return value
        value = meant
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value
