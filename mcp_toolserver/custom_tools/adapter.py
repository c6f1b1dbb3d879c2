"""Adapts a custom tool to the server's dispatcher."""

from collections.abc import Iterator, Mapping
from types import new_class
from typing import ClassVar

from pydantic import ConfigDict, JsonValue, model_validator

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.custom_tools.built_tool import BuiltTool, run_check
from mcp_toolserver.custom_tools.call import as_result, call_function, to_text
from mcp_toolserver.custom_tools.check_schema import FindErrors, closed_schema, schema_checker
from mcp_toolserver.custom_tools.declaration import check_names
from mcp_toolserver.custom_tools.tool import Payload, Tool, ToolContext, ToolResult
from mcp_toolserver.errors import Denied, Failed
from mcp_toolserver.pipeline.registry import Entry
from mcp_toolserver.tool_spec import Args, Limits, Output, Profile, Runtime, ToolSpec

TOOLSET = "user"
NEEDS = frozenset({Capability.OWN_CODE})
OPEN_WORLD_NEEDS = NEEDS
"""Capabilities that can reach beyond this machine's files: the tool's code runs in the server's process."""


class _Payload(Args):
    """Arguments checked by a JSON Schema alone."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")
    find_errors: ClassVar[FindErrors]

    @model_validator(mode="before")
    @classmethod
    def _check_schema(cls, given: Payload) -> Payload:
        if why := cls.find_errors(given):
            raise ValueError(why)
        return given


def as_entry(tool: Tool) -> Entry:
    """Adapt a tool to the dispatcher, which serializes calls of tools that are not concurrency-safe.

    Raises:
        RegistrationError: its name, description or schema is invalid.
    """
    check_names(tool.name, tool.description)
    built = tool if isinstance(tool, BuiltTool) else _from_protocol(tool)

    async def run(args: Args, rt: Runtime) -> Output:
        context = _context(built.name, rt)
        payload = args.model_dump(mode="json")
        await _check_permissions(built, payload, context)
        found = await call_function(built.body, args if built.args else built.decode(payload), context)
        return found if isinstance(found, Output) else _output(as_result(found))

    spec = ToolSpec(
        name=built.name,
        description=built.description.strip(),
        permission=built.permission,
        needs=NEEDS,
        args=built.args or _model(built),
        run=run,
        kind=built.kind,
        subjects=lambda args: tuple(_all_strings(args.model_dump(mode="json"))),
        destructive=built.destructive,
        idempotent=built.idempotent,
        serial=not built.concurrency_safe,
        may_be_long=built.deadline > Limits().deadline,
        limits=Limits(deadline=built.deadline),
        profile=Profile.DEFAULT,
        custom_schema=dict(built.checked_schema),
    )
    return Entry(spec, TOOLSET)


def _from_protocol(tool: Tool) -> BuiltTool:
    """Convert a tool written as a class, which declares only whether it reads and is concurrency-safe."""
    schema = closed_schema(dict(tool.input_schema))
    reads = tool.is_read_only()
    return BuiltTool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        checked_schema=schema,
        find_errors=schema_checker(tool.name, schema),
        decode=lambda payload: payload,
        body=tool.execute,
        check=tool.check_permissions,
        permission=Permission.READ_ONLY if reads else Permission.DANGER_FULL_ACCESS,
        kind="other",
        concurrency_safe=tool.is_concurrency_safe(),
        destructive=not reads,
        idempotent=reads,
        deadline=Limits().deadline,
    )


def _model(built: BuiltTool) -> type[Args]:
    """Return an `Args` model that validates with the tool's own schema, before anyone is asked for
    permission."""
    check = staticmethod(built.find_errors)
    return new_class(built.name, (_Payload,), {}, lambda body: body.update(find_errors=check))


def _context(name: str, rt: Runtime) -> ToolContext:
    origin = rt.origin
    if not origin.folder:
        raise Denied(f"{name} has no folder to work in: the client left none of the server's roots.")
    return ToolContext(working_directory=origin.folder, session_id=origin.session)


async def _check_permissions(built: BuiltTool, payload: Payload, context: ToolContext) -> None:
    """Run the tool's own check, which can only refuse: mode and rules have already permitted the call."""
    if built.check is None:
        return
    try:
        await run_check(built.name, built.check, payload, context)
    except PermissionError as error:
        raise Denied(str(error)) from None


def _output(result: ToolResult) -> Output:
    if result.error is not None:
        raise Failed(result.error)
    return Output(to_text(result.output))


def _all_strings(value: JsonValue | Mapping[str, JsonValue]) -> Iterator[str]:
    """Yield every string in the arguments: rules may match any of them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _all_strings(part)
    elif isinstance(value, list):
        for part in value:
            yield from _all_strings(part)
