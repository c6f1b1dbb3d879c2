"""A tool of somebody else's as the server's dispatcher runs it."""

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from types import new_class
from typing import ClassVar

import anyio
from pydantic import ConfigDict, JsonValue, model_validator

from mcp_toolserver.capabilities.prices import Capability, Permission
from mcp_toolserver.errors import Denied, Failed
from mcp_toolserver.labels import Label
from mcp_toolserver.library.built import BuiltTool, asked
from mcp_toolserver.library.calling import as_result, called, told
from mcp_toolserver.library.declared import check_names
from mcp_toolserver.library.schema import Refusal, checker, strict
from mcp_toolserver.library.values import Payload, Tool, ToolContext, ToolResult
from mcp_toolserver.registry import Entry
from mcp_toolserver.spec import Args, Limits, Output, Profile, Runtime, ToolSpec

TOOLSET = "user"
NEEDS = frozenset({Capability.OWN_CODE})
OPEN = NEEDS
"""What such a tool may reach beyond this machine's files: its code runs in the server's process."""


class _Payload(Args):
    """Arguments that only their JSON Schema knows."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")
    refusal: ClassVar[Refusal]

    @model_validator(mode="before")
    @classmethod
    def _fitting(cls, given: Payload) -> Payload:
        if why := cls.refusal(given):
            raise ValueError(why)
        return given


def as_entry(tool: Tool, alone: anyio.Lock | None = None) -> Entry:
    """The tool for a dispatcher. Calls of tools that share `alone` and are not safe beside others take turns.

    Raises:
        RegistrationError: its name, description or schema cannot be used.
    """
    check_names(tool.name, tool.description)
    built = tool if isinstance(tool, BuiltTool) else _of_protocol(tool)
    turn = nullcontext() if built.concurrency_safe else alone or anyio.Lock()

    async def run(args: Args, rt: Runtime) -> Output:
        context = _context(built.name, rt)
        payload = args.model_dump(mode="json")
        await _permit(built, payload, context)
        async with turn:
            found = await called(built.body, args if built.args else built.decode(payload), context)
        return found if isinstance(found, Output) else _output(as_result(found))

    spec = ToolSpec(
        name=built.name,
        description=built.description,
        permission=built.permission,
        needs=NEEDS,
        args=built.args or _model(built),
        run=run,
        kind=built.kind,
        subjects=lambda args: tuple(_texts(args.model_dump(mode="json"))),
        destructive=built.destructive,
        idempotent=built.idempotent,
        may_be_long=built.deadline > Limits().deadline,
        limits=Limits(deadline=built.deadline),
        profile=Profile.DEFAULT,
    )
    return Entry(spec, TOOLSET, Label.of(spec, dict(built.checked_schema)))


def _of_protocol(tool: Tool) -> BuiltTool:
    """A tool that somebody wrote as a class. It says only whether it reads and may run beside others."""
    schema = strict(dict(tool.input_schema))
    reads = tool.is_read_only()
    return BuiltTool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        checked_schema=schema,
        refusal=checker(tool.name, schema),
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
    """Arguments that are checked, before anybody is asked, by the tool's own schema."""
    check = staticmethod(built.refusal)
    return new_class(built.name, (_Payload,), {}, lambda body: body.update(refusal=check))


def _context(name: str, rt: Runtime) -> ToolContext:
    origin = rt.origin
    if not origin.folder:
        raise Denied(f"{name} has no folder to work in: the client left none of the server's roots.")
    return ToolContext(working_directory=origin.folder, session_id=origin.session)


async def _permit(built: BuiltTool, payload: Payload, context: ToolContext) -> None:
    """The tool's own check, which can only refuse: that the call may run is decided by then."""
    if built.check is None:
        return
    try:
        await asked(built.name, built.check, payload, context)
    except PermissionError as error:
        raise Denied(str(error)) from None


def _output(result: ToolResult) -> Output:
    if result.error is not None:
        raise Failed(result.error)
    return Output(told(result.output))


def _texts(value: JsonValue | Mapping[str, JsonValue]) -> Iterator[str]:
    """Every text in the arguments: any of them may be what a rule is about."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)
