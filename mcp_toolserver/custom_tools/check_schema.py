"""Whether arguments fit a JSON Schema, said without repeating them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Protocol

from pydantic import JsonValue

from mcp_toolserver.errors import RegistrationError
from mcp_toolserver.text.schema import Schema

Refusal = Callable[[JsonValue], str | None]
"""What is wrong with some arguments, or None."""

_OPEN = (
    "additionalProperties",
    "patternProperties",
    "unevaluatedProperties",
    "$ref",
    "allOf",
    "anyOf",
    "oneOf",
)
_SHOWN = 200
_MISTAKES = 10


class _Mistake(Protocol):
    """What `jsonschema` says is wrong; its `message` is not used, because it holds what was sent."""

    absolute_path: Iterable[str | int]
    validator: str
    validator_value: JsonValue
    instance: JsonValue


def strict(schema: Mapping[str, JsonValue]) -> Schema:
    """`schema` with unknown arguments refused, unless it says something about them itself."""
    says = any(key in schema for key in _OPEN)
    return dict(schema) if says else {**schema, "additionalProperties": False}


def checker(name: str, schema: Schema) -> Refusal:
    """The check of the arguments of the tool `name`.

    Raises:
        RegistrationError: the schema is none, is not of an object, or refers to something outside itself.
    """
    if schema.get("type") != "object":
        raise RegistrationError(f"the input_schema of {name} must be of type object")
    if outside := [reference for reference in _references(schema) if not reference.startswith("#")]:
        raise RegistrationError(f"the input_schema of {name} refers to {outside[0]}, outside itself")
    # Only tools with a schema of their own need it, and it takes a sixth of a second.
    language = import_module("jsonschema").Draft202012Validator
    broken: type[Exception] = import_module("jsonschema").SchemaError
    try:
        language.check_schema(schema)
    except broken as error:
        raise RegistrationError(f"the input_schema of {name} is no JSON Schema") from error
    # With an empty registry nothing is ever fetched.
    mistakes: Callable[[JsonValue], Iterable[_Mistake]] = language(
        schema, registry=import_module("referencing").Registry()
    ).iter_errors

    def refusal(payload: JsonValue) -> str | None:
        lines = dict.fromkeys(line for mistake in mistakes(payload) for line in _said(mistake))
        return "; ".join(sorted(lines)[:_MISTAKES]) or None

    return refusal


def _said(mistake: _Mistake) -> Iterator[str]:
    where = "".join(f"{part}." for part in mistake.absolute_path)
    value, given = mistake.validator_value, mistake.instance
    if mistake.validator == "required" and isinstance(value, list) and isinstance(given, dict):
        yield from (f"{where}{name} is missing" for name in value if name not in given)
    elif mistake.validator == "additionalProperties":
        yield f"{where[:-1] or 'the call'} has an argument that is not known"
    else:
        yield f"{where[:-1] or 'arguments'} must hold to {mistake.validator}: {str(value)[:_SHOWN]}"


def _references(node: JsonValue) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("$ref", "$dynamicRef") and isinstance(value, str):
                yield value
            yield from _references(value)
    elif isinstance(node, list):
        for item in node:
            yield from _references(item)
