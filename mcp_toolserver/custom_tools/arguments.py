"""Makes the `Args` model that checks a tool's arguments, from a pydantic model, typed parameters or a JSON
Schema."""

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import new_class
from typing import Protocol, Self

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from mcp_toolserver.custom_tools.tool import Payload
from mcp_toolserver.errors import InvalidInput, RegistrationError
from mcp_toolserver.text.json_schema import Schema, plain_schema
from mcp_toolserver.text.json_values import nodes
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
        if lines:
            return "; ".join(sorted(lines)[:_MAX_ERRORS])
        try:
            decoded(schema, payload)
        except ValueError as error:
            return str(error)
        return None

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


def decoded(schema: JsonValue, value: JsonValue, where: str = "") -> object:
    """Return `value` with bytes in place of the texts that `schema` marks as base64, but for those of types
    that decode themselves. Raises: ValueError: one is not base64; names the argument `where` it is."""
    if not isinstance(schema, dict):
        return value
    if isinstance(value, str) and schema.get("contentEncoding") == "base64" and "format" not in schema:
        try:
            return base64.b64decode(value, validate=True)
        except ValueError:
            raise ValueError(f"{where.removeprefix('.')} must be base64") from None
    if isinstance(value, list):
        return [decoded(schema.get("items"), item, f"{where}.{at}") for at, item in enumerate(value)]
    if isinstance(value, dict):
        named, rest = schema.get("properties"), schema.get("additionalProperties")
        parts = named if isinstance(named, dict) else {}
        return {key: decoded(parts.get(key, rest), item, f"{where}.{key}") for key, item in value.items()}
    return value


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


def from_schema(
    name: str,
    given: object,
    decode: Decode = lambda args: (args.model_dump(),),
    find_more: FindErrors = lambda _: None,
) -> ArgumentForm:
    """Take arguments as a dictionary that fits a JSON Schema. Raises: RegistrationError: it is none."""
    try:
        schema = _SCHEMA.validate_python(given)
    except ValidationError:
        raise RegistrationError(f"{name}: input_schema must be a dictionary of JSON values") from None
    says = any(key in schema for key in _MENTIONS)
    checked = schema if says else {**schema, "additionalProperties": False}
    find_errors = schema_checker(name, checked)
    args = _checked_by(lambda payload: find_errors(payload) or find_more(payload))
    return ArgumentForm(given=schema, checked=checked, args=args, decode=decode)


_TYPES: Mapping[str, Schema] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    "double": {"type": "number"},
    "data": {"type": "string", "contentEncoding": "base64"},
}


@dataclass(frozen=True)
class ToolParameter:
    """A typed parameter, made by `required` or `optional`. Keywords of JSON Schema can be added.

    A type is `string`, `bool`, `int`, `double`, `data` (bytes, which models send as base64), or what `array`
    or `object` returns.
    """

    name: str
    schema: Schema
    is_required: bool

    @classmethod
    def required(cls, name: str, kind: str | Schema, description: str, **keywords: JsonValue) -> Self:
        """Return a parameter that each call must have. Raises: RegistrationError: the type is unknown."""
        return cls(name, {**_type(kind), "description": description, **keywords}, is_required=True)

    @classmethod
    def optional(cls, name: str, kind: str | Schema, description: str, **keywords: JsonValue) -> Self:
        """Return a parameter that a call may leave out. Raises: RegistrationError: the type is unknown."""
        return cls(name, {**_type(kind), "description": description, **keywords}, is_required=False)

    @staticmethod
    def array(items: str | Schema) -> Schema:
        """Return the type of a list. Raises: RegistrationError: the type of its items is unknown."""
        return {"type": "array", "items": _type(items)}

    @staticmethod
    def object(*parameters: "ToolParameter") -> Schema:
        """Return the type of an object, which refuses unknown members."""
        return {
            "type": "object",
            "properties": {one.name: one.schema for one in parameters},
            "required": [one.name for one in parameters if one.is_required],
            "additionalProperties": False,
        }


def _type(kind: str | Schema) -> Schema:
    if isinstance(kind, str) and kind not in _TYPES:
        raise RegistrationError(f"{kind} is no type; choose from {', '.join(_TYPES)}")
    return _TYPES[kind] if isinstance(kind, str) else kind


def from_parameters(name: str, parameters: Sequence[ToolParameter]) -> ArgumentForm:
    """Take arguments as a dictionary, with bytes for `data`."""
    schema = ToolParameter.object(*parameters)
    return from_schema(name, schema, lambda args: (decoded(schema, args.model_dump()),))


def from_model(name: str, model: type[BaseModel], own: Mapping[str, JsonValue] | None) -> ArgumentForm:
    """Take arguments as a model; unless it says otherwise, unknown arguments are refused.

    They must also fit the JSON Schema `own`, which replaces that of the model.
    """
    is_open = model.model_config.get("extra") is not None
    exact: type[BaseModel] = model if is_open else new_class(model.__name__, (model,), {"extra": "forbid"})
    generated = plain_schema(exact)
    if issubclass(exact, Args):
        if own is not None or any(isinstance(n, dict) and "contentEncoding" in n for n in nodes(generated)):
            raise RegistrationError(
                f"{name}: a model derived from Args takes neither bytes nor an input_schema"
            )
        return ArgumentForm(given=generated, checked=generated, args=exact, decode=lambda args: (args,))

    def find_errors(payload: JsonValue) -> str | None:
        try:
            exact.model_validate(decoded(generated, payload))
        except ValidationError as error:
            return _text(error)
        except ValueError as error:
            return str(error)
        return None

    def decode(args: Args) -> tuple[object, ...]:
        return (exact.model_validate(decoded(generated, args.model_dump())),)

    # Rules match arguments as sent, so the server keeps those: another model may change or hide them.
    if own is None:
        return ArgumentForm(given=generated, checked=generated, args=_checked_by(find_errors), decode=decode)
    return from_schema(name, own, decode, find_errors)


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
