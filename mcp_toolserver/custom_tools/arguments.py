"""Makes the `Args` model that checks a tool's arguments, from a pydantic model or a JSON Schema."""

from collections.abc import Callable
from dataclasses import dataclass
from types import new_class

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from mcp_toolserver.custom_tools.check_schema import FindErrors, closed_schema, schema_checker
from mcp_toolserver.custom_tools.tool import Payload
from mcp_toolserver.errors import InvalidInput, RegistrationError
from mcp_toolserver.text.json_schema import Schema, plain_schema
from mcp_toolserver.tool_spec import Args, ToolSpec

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
    """Take arguments as a dictionary that fits a JSON Schema.

    Raises:
        RegistrationError: it is no JSON Schema of an object.
    """
    try:
        schema = _SCHEMA.validate_python(given)
    except ValidationError:
        raise RegistrationError(f"{name}: input_schema must be a dictionary of JSON values") from None
    checked = closed_schema(schema)
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
    """Check the arguments of a call outside the server.

    Raises:
        InvalidInput: they do not fit; its text does not quote them.
    """
    try:
        return spec.args.model_validate(payload)
    except ValidationError as error:
        raise InvalidInput(f"{spec.name} cannot use these arguments: {_text(error)}.") from None


def payload(args: Args) -> Payload:
    """The arguments as JSON, for rules and for the tool's own check."""
    return args.model_dump(mode="json")


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
