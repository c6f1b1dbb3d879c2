"""Builds tools from dictionaries, functions and objects."""

from collections.abc import Callable, Mapping
from typing import Unpack

from pydantic import BaseModel, JsonValue

from mcp_toolserver.custom_tools.arguments import ArgumentForm, from_model, from_schema, payload
from mcp_toolserver.custom_tools.built_tool import BuiltTool
from mcp_toolserver.custom_tools.call import as_result, call_function, run_check, to_text
from mcp_toolserver.custom_tools.declaration import Declared, declared_check, declared_spec
from mcp_toolserver.custom_tools.tool import Tool, ToolContext
from mcp_toolserver.errors import Denied, Failed, RegistrationError
from mcp_toolserver.pipeline.registry import Entry
from mcp_toolserver.tool_spec import Args, Output, Runtime

TOOLSET = "user"

_REQUIRED = ("name", "description", "input_schema", "execute")
MEMBERS = (*_REQUIRED, "check_permissions", "is_read_only", "is_concurrency_safe")
"""The members of `Tool`, which are keys of `build_tool`."""


def build_tool(definition: Mapping[str, object]) -> BuiltTool:
    """Build a tool from a dictionary: `name`, `description`, `input_schema`, `execute(payload, context)`, and
    the keys of `Declared`, where flags may be functions without arguments.

    Raises:
        RegistrationError: a key is missing, unknown or has the wrong type.
    """
    if missing := [key for key in _REQUIRED if key not in definition]:
        raise RegistrationError(f"a tool needs {missing[0]}")
    name = str(definition["name"])
    execute, description = definition["execute"], definition["description"]
    if not callable(execute) or not isinstance(description, str):
        raise RegistrationError(f"{name}: execute must be a function, and the description text")
    declared = {key: value for key, value in definition.items() if key not in _REQUIRED}
    return _build(name, description, execute, from_schema(name, definition["input_schema"]), declared)


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
        RegistrationError: a declaration is unknown or invalid.
    """
    if isinstance(takes, type):
        form = from_model(takes)
    elif takes is None:
        form = from_schema(name, {"type": "object", "properties": {}}, lambda _: ())
    else:
        form = from_schema(name, takes)
    return _build(name, description, run, form, declared)


def as_entry(tool: Tool) -> Entry:
    """Return the registry entry of a tool. The dispatcher serializes calls of tools that are not
    concurrency-safe.

    Raises:
        RegistrationError: its name, description or schema is invalid.
    """
    if isinstance(tool, BuiltTool):
        return Entry(tool.spec, TOOLSET)
    return Entry(build_tool({member: getattr(tool, member) for member in MEMBERS}).spec, TOOLSET)


def _build(
    name: str,
    description: str,
    function: Callable[..., object],
    form: ArgumentForm,
    declared: Mapping[str, object],
) -> BuiltTool:
    if unknown := [key for key in declared if key not in Declared.__annotations__]:
        known = ", ".join(Declared.__annotations__)
        raise RegistrationError(f"{name}: {unknown[0]} is not known; choose from {known}")
    check = declared_check(name, declared)

    async def body(args: Args, context: ToolContext) -> object:
        return await call_function(function, *form.decode(args), context)

    async def run(args: Args, rt: Runtime) -> Output:
        context = _context(name, rt)
        if check is not None:
            # It can only refuse: mode and rules have already permitted the call.
            try:
                await run_check(name, check, payload(args), context)
            except PermissionError as error:
                raise Denied(str(error)) from None
        return _output(await body(args, context))

    spec = declared_spec(name, description, declared, form, run)
    return BuiltTool(spec=spec, input_schema=form.given, body=body, check=check)


def _context(name: str, rt: Runtime) -> ToolContext:
    if not rt.origin.working_directory:
        raise Denied(f"{name} has no folder to work in: the client left none of the server's roots.")
    return rt.origin


def _output(found: object) -> Output:
    if isinstance(found, Output):
        return found
    result = as_result(found)
    if result.error is not None:
        raise Failed(result.error)
    return Output(to_text(result.output))
