"""Makes the `Args` model that checks a tool's arguments, from a pydantic model or a JSON Schema."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from types import new_class
from typing import Protocol

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from mcp_toolserver.custom_tools.tool import Payload
from mcp_toolserver.errors import InvalidInput, RegistrationError
from mcp_toolserver.text.json_schema import Schema, plain_schema
from mcp_toolserver.tool_spec import Args, ToolSpec

FindErrors = Callable[[JsonValue], str | None]
"""Describes the errors in arguments, or returns None."""

_MENTIONS = (
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


_ERROR = "arguments"
"""The type of the validation errors that a `FindErrors` describes."""

_SCHEMA: TypeAdapter[Schema] = TypeAdapter(Schema)

Decode = Callable[[Args], tuple[object, ...]]
"""Converts valid arguments to those of the tool's function, without the context."""


@dataclass(frozen=True, kw_only=True)
class ArgumentForm:
    """How a tool takes its arguments."""

    given: Schema
    """The schema as given."""
    checked: Schema
    """The schema that calls are checked against; it refuses unknown arguments."""
    args: type[Args]
    decode: Decode


def from_schema(name: str, given: object, decode: Decode = lambda args: (args.model_dump(),)) -> ArgumentForm:
    """Take arguments as a dictionary that fits a JSON Schema. Raises: RegistrationError: it is none."""
    try:
        schema = _SCHEMA.validate_python(given)
    except ValidationError:
        raise RegistrationError(f"{name}: input_schema must be a dictionary of JSON values") from None
    says = any(key in schema for key in _MENTIONS)
    checked = schema if says else {**schema, "additionalProperties": False}
    args = _checked_by(schema_checker(name, checked))
    return ArgumentForm(given=schema, checked=checked, args=args, decode=decode)


def from_model(model: type[BaseModel]) -> ArgumentForm:
    """Take arguments as a model; unless it says otherwise, unknown arguments are refused."""
    is_open = model.model_config.get("extra") is not None
    exact: type[BaseModel] = model if is_open else new_class(model.__name__, (model,), {"extra": "forbid"})
    schema = plain_schema(exact)
    if issubclass(exact, Args):
        return ArgumentForm(given=schema, checked=schema, args=exact, decode=lambda args: (args,))

    def find_errors(payload: JsonValue) -> str | None:
        try:
            exact.model_validate(payload)
        except ValidationError as error:
            return _text(error)
        return None

    def decode(args: Args) -> tuple[object, ...]:
        return (exact.model_validate(args.model_dump()),)

    # Rules match arguments as sent, so the server keeps those: another model may change or hide them.
    return ArgumentForm(given=schema, checked=schema, args=_checked_by(find_errors), decode=decode)


def parse(spec: ToolSpec, payload: Payload) -> Args:
    """Check the arguments of a call outside the server. Raises: InvalidInput, without quoting them."""
    try:
        return spec.args.model_validate(payload)
    except ValidationError as error:
        raise InvalidInput(f"{spec.name} cannot use these arguments: {_text(error)}.") from None


def _checked_by(find_errors: FindErrors) -> type[Args]:
    """Make a model that keeps arguments as sent."""

    class AsSent(Args):
        model_config = ConfigDict(extra="allow")

        @model_validator(mode="before")
        @classmethod
        def check(cls, given: JsonValue) -> JsonValue:
            if why := find_errors(given):
                raise PydanticCustomError(_ERROR, "{why}", {"why": why})
            return given

    return AsSent


def _text(error: ValidationError) -> str:
    """Describe validation errors without the values."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(
        one["msg"]
        if one["type"] == _ERROR
        else f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}"
        for one in found
    )
