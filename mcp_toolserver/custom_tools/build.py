"""Tools made from dictionaries and functions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import new_class
from typing import Unpack

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from mcp_toolserver.errors import RegistrationError
from mcp_toolserver.library.built import BuiltTool, Declared
from mcp_toolserver.library.declared import said_of
from mcp_toolserver.library.schema import Refusal, checker, strict
from mcp_toolserver.library.values import Payload, ToolContext
from mcp_toolserver.spec import Args
from mcp_toolserver.text.schema import Schema, plain_schema

_REQUIRED = ("name", "description", "input_schema", "execute")
_KNOWN = (*_REQUIRED, *Declared.__annotations__)
_SCHEMA: TypeAdapter[Schema] = TypeAdapter(Schema)


def build_tool(definition: Mapping[str, object]) -> BuiltTool:
    """A tool from a dictionary: `name`, `description`, `input_schema`, `execute(payload, context)`, and what
    `Declared` names, where flags may also be functions without arguments.

    Raises:
        RegistrationError: something is missing, unknown or of the wrong kind.
    """
    if lacking := [key for key in _REQUIRED if key not in definition]:
        raise RegistrationError(f"a tool needs {lacking[0]}")
    name = str(definition["name"])
    if unknown := [key for key in definition if key not in _KNOWN]:
        raise RegistrationError(f"{name}: {unknown[0]} is not known; choose from {', '.join(_KNOWN)}")
    execute, description = definition["execute"], definition["description"]
    if not callable(execute) or not isinstance(description, str):
        raise RegistrationError(f"{name}: execute must be a function, and the description text")
    declared = {key: value for key, value in definition.items() if key not in _REQUIRED}
    return _built(name, description, _of_schema(name, definition["input_schema"]), execute, declared)


def define_tool(
    name: str,
    description: str,
    run: Callable[..., object],
    takes: type[BaseModel] | Mapping[str, JsonValue] | None = None,
    **declared: Unpack[Declared],
) -> BuiltTool:
    """A tool from a function, sync or async. What it gives is text, a `ToolResult`, or a value for JSON.

    With a model as `takes` the function is called as `run(model, context)`, with a JSON Schema as
    `run(dictionary, context)`, with nothing as `run(context)`.

    Raises:
        RegistrationError: a declaration is wrong.
    """
    if takes is None:
        return _built(name, description, _of_nothing(name), _ignoring_arguments(run), declared)
    form = _of_model(takes) if isinstance(takes, type) else _of_schema(name, takes)
    return _built(name, description, form, run, declared)


def _ignoring_arguments(run: Callable[..., object]) -> Callable[[object, ToolContext], object]:
    return lambda _, context: run(context)


@dataclass(frozen=True, kw_only=True)
class _Form:
    """How a tool takes its arguments; see `BuiltTool`."""

    told: Schema
    checked: Schema
    refusal: Refusal
    decode: Callable[[Payload], object]
    args: type[Args] | None = None


def _built(
    name: str,
    description: str,
    form: _Form,
    body: Callable[..., object],
    declared: Mapping[str, object],
) -> BuiltTool:
    said = said_of(name, description, declared)
    return BuiltTool(
        name=name,
        description=description,
        input_schema=form.told,
        checked_schema=form.checked,
        refusal=form.refusal,
        decode=form.decode,
        body=body,
        check=said.check,
        permission=said.permission,
        kind=said.kind,
        concurrency_safe=said.concurrency_safe,
        destructive=said.destructive,
        idempotent=said.idempotent,
        deadline=said.deadline,
        args=form.args,
    )


def _of_schema(name: str, given: object) -> _Form:
    try:
        told = _SCHEMA.validate_python(given)
    except ValidationError:
        raise RegistrationError(f"{name}: input_schema must be a dictionary of JSON values") from None
    checked = strict(told)
    return _Form(told=told, checked=checked, refusal=checker(name, checked), decode=lambda payload: payload)


def _of_nothing(name: str) -> _Form:
    return _of_schema(name, {"type": "object", "properties": {}})


def _of_model(model: type[BaseModel]) -> _Form:
    """A model that says nothing about unknown arguments refuses them."""
    is_open = model.model_config.get("extra") is not None
    exact: type[BaseModel] = model if is_open else new_class(model.__name__, (model,), {"extra": "forbid"})
    schema = plain_schema(exact)

    def refusal(payload: JsonValue) -> str | None:
        try:
            exact.model_validate(payload)
        except ValidationError as error:
            return _mistakes(error)
        return None

    def decode(payload: Payload) -> object:
        return exact.model_validate(payload)

    args = exact if issubclass(exact, Args) else None
    return _Form(told=schema, checked=schema, refusal=refusal, decode=decode, args=args)


def _mistakes(error: ValidationError) -> str:
    """Without the values that were sent."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}" for one in found)
