"""Checks arguments against a JSON Schema without quoting their values."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Protocol

from pydantic import JsonValue

from mcp_toolserver.errors import RegistrationError
from mcp_toolserver.text.json_schema import Schema

FindErrors = Callable[[JsonValue], str | None]
"""Describes the errors in arguments, or returns None."""

_OPEN = (
    "additionalProperties",
    "patternProperties",
    "unevaluatedProperties",
    "$ref",
    "allOf",
    "anyOf",
    "oneOf",
)
_REFERENCES = ("$ref", "$dynamicRef")
_MAX_SHOWN = 200
_MAX_ERRORS = 10


class _SchemaError(Protocol):
    """An error of `jsonschema`; its `message` is not used, because it quotes values."""

    absolute_path: Iterable[str | int]
    validator: str
    validator_value: JsonValue
    instance: JsonValue


def closed_schema(schema: Mapping[str, JsonValue]) -> Schema:
    """Return `schema` with unknown arguments refused, unless it mentions them itself."""
    says = any(key in schema for key in _OPEN)
    return dict(schema) if says else {**schema, "additionalProperties": False}


def schema_checker(name: str, schema: Schema) -> FindErrors:
    """Return a checker for the arguments of the tool `name`.

    Raises:
        RegistrationError: the schema is invalid, not of an object, or has an external reference.
    """
    if schema.get("type") != "object":
        raise RegistrationError(f"the input_schema of {name} must be of type object")
    references = [n[key] for n in nodes(schema) if isinstance(n, dict) for key in _REFERENCES if key in n]
    if outside := [there for there in references if isinstance(there, str) and not there.startswith("#")]:
        raise RegistrationError(f"the input_schema of {name} refers to {outside[0]}, outside itself")
    # Imported on demand: the import takes 0.17 s, and only tools with a schema of their own need it.
    language = import_module("jsonschema").Draft202012Validator
    broken: type[Exception] = import_module("jsonschema").SchemaError
    try:
        language.check_schema(schema)
    except broken as error:
        raise RegistrationError(f"the input_schema of {name} is no JSON Schema") from error
    # An empty registry prevents fetching references.
    iter_errors: Callable[[JsonValue], Iterable[_SchemaError]] = language(
        schema, registry=import_module("referencing").Registry()
    ).iter_errors

    def find_errors(payload: JsonValue) -> str | None:
        lines = dict.fromkeys(line for error in iter_errors(payload) for line in _describe(error))
        return "; ".join(sorted(lines)[:_MAX_ERRORS]) or None

    return find_errors


def _describe(error: _SchemaError) -> Iterator[str]:
    where = "".join(f"{part}." for part in error.absolute_path)
    value, given = error.validator_value, error.instance
    if error.validator == "required" and isinstance(value, list) and isinstance(given, dict):
        yield from (f"{where}{name} is missing" for name in value if name not in given)
    elif error.validator == "additionalProperties":
        yield f"{where[:-1] or 'the call'} has an argument that is not known"
    else:
        yield f"{where[:-1] or 'arguments'} must satisfy {error.validator}: {str(value)[:_MAX_SHOWN]}"


def nodes(value: JsonValue) -> Iterator[JsonValue]:
    """Yield a JSON value and all values inside it."""
    yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in inner:
        yield from nodes(part)
