"""Builds tools from dictionaries and functions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import new_class
from typing import Unpack

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from mcp_toolserver.custom_tools.built_tool import BuiltTool, Declared
from mcp_toolserver.custom_tools.check_schema import FindErrors, closed_schema, schema_checker
from mcp_toolserver.custom_tools.declaration import parse_declarations
from mcp_toolserver.custom_tools.tool import Payload, ToolContext
from mcp_toolserver.errors import RegistrationError
from mcp_toolserver.text.json_schema import Schema, plain_schema
from mcp_toolserver.tool_spec import Args

_REQUIRED = ("name", "description", "input_schema", "execute")
_KNOWN = (*_REQUIRED, *Declared.__annotations__)
_SCHEMA: TypeAdapter[Schema] = TypeAdapter(Schema)


def build_tool(definition: Mapping[str, object]) -> BuiltTool:
    """Build a tool from a dictionary: `name`, `description`, `input_schema`, `execute(payload, context)`, and
    the keys of `Declared`, where flags may be functions without arguments.

    Raises:
        RegistrationError: a key is missing, unknown or has the wrong type.
    """
    if missing := [key for key in _REQUIRED if key not in definition]:
        raise RegistrationError(f"a tool needs {missing[0]}")
    name = str(definition["name"])
    if unknown := [key for key in definition if key not in _KNOWN]:
        raise RegistrationError(f"{name}: {unknown[0]} is not known; choose from {', '.join(_KNOWN)}")
    execute, description = definition["execute"], definition["description"]
    if not callable(execute) or not isinstance(description, str):
        raise RegistrationError(f"{name}: execute must be a function, and the description text")
    declared = {key: value for key, value in definition.items() if key not in _REQUIRED}
    return _build(name, description, _from_schema(name, definition["input_schema"]), execute, declared)


def define_tool(
    name: str,
    description: str,
    run: Callable[..., object],
    takes: type[BaseModel] | Mapping[str, JsonValue] | None = None,
    **declared: Unpack[Declared],
) -> BuiltTool:
    """Build a tool from a function, sync or async, that returns text, a `ToolResult` or a JSON value.

    If `takes` is a model, the function is called as `run(model, context)`; if it is a JSON Schema, as
    `run(dictionary, context)`; if it is None, as `run(context)`.

    Raises:
        RegistrationError: a declaration is invalid.
    """
    if takes is None:
        return _build(name, description, _no_arguments(name), _ignoring_arguments(run), declared)
    form = _from_model(takes) if isinstance(takes, type) else _from_schema(name, takes)
    return _build(name, description, form, run, declared)


def _ignoring_arguments(run: Callable[..., object]) -> Callable[[object, ToolContext], object]:
    return lambda _, context: run(context)


@dataclass(frozen=True, kw_only=True)
class _ArgumentForm:
    """The argument handling of a tool; see `BuiltTool`."""

    schema: Schema
    checked: Schema
    find_errors: FindErrors
    decode: Callable[[Payload], object]
    args: type[Args] | None = None


def _build(
    name: str,
    description: str,
    form: _ArgumentForm,
    body: Callable[..., object],
    declared: Mapping[str, object],
) -> BuiltTool:
    parsed = parse_declarations(name, description, declared)
    return BuiltTool(
        name=name,
        description=description,
        input_schema=form.schema,
        checked_schema=form.checked,
        find_errors=form.find_errors,
        decode=form.decode,
        body=body,
        check=parsed.check,
        permission=parsed.permission,
        kind=parsed.kind,
        concurrency_safe=parsed.concurrency_safe,
        destructive=parsed.destructive,
        idempotent=parsed.idempotent,
        deadline=parsed.deadline,
        args=form.args,
    )


def _from_schema(name: str, given: object) -> _ArgumentForm:
    try:
        schema = _SCHEMA.validate_python(given)
    except ValidationError:
        raise RegistrationError(f"{name}: input_schema must be a dictionary of JSON values") from None
    checked = closed_schema(schema)
    return _ArgumentForm(
        schema=schema,
        checked=checked,
        find_errors=schema_checker(name, checked),
        decode=lambda payload: payload,
    )


def _no_arguments(name: str) -> _ArgumentForm:
    return _from_schema(name, {"type": "object", "properties": {}})


def _from_model(model: type[BaseModel]) -> _ArgumentForm:
    """Handle arguments with a model; unless it says otherwise, unknown arguments are refused."""
    is_open = model.model_config.get("extra") is not None
    exact: type[BaseModel] = model if is_open else new_class(model.__name__, (model,), {"extra": "forbid"})
    schema = plain_schema(exact)

    def find_errors(payload: JsonValue) -> str | None:
        try:
            exact.model_validate(payload)
        except ValidationError as error:
            return _error_text(error)
        return None

    def decode(payload: Payload) -> object:
        return exact.model_validate(payload)

    args = exact if issubclass(exact, Args) else None
    return _ArgumentForm(schema=schema, checked=schema, find_errors=find_errors, decode=decode, args=args)


def _error_text(error: ValidationError) -> str:
    """Describe validation errors without the values."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}" for one in found)
