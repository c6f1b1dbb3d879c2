"""Builds tools from dictionaries, functions and objects; missing declarations get the safest default."""

import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypedDict, TypeVar, Unpack, get_args

from pydantic import BaseModel, JsonValue, ValidationError

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.capabilities.requirements import RequirementSet
from mcp_toolserver.custom_tools.arguments import (
    ArgumentForm,
    ToolParameter,
    from_model,
    from_parameters,
    from_schema,
    parse,
)
from mcp_toolserver.custom_tools.tool import (
    Check,
    Payload,
    Tool,
    ToolContext,
    ToolResult,
    as_result,
    call_function,
    context_hooks,
    run_check,
)
from mcp_toolserver.errors import Denied, Failed, RegistrationError, ToolError
from mcp_toolserver.pipeline.hooks import HookedCall
from mcp_toolserver.pipeline.registry import Entry
from mcp_toolserver.text.json_values import texts_in
from mcp_toolserver.text.shell.command_output import noted
from mcp_toolserver.tool_spec import Args, Kind, Limits, Output, Profile, Runtime, ToolSpec

T = TypeVar("T")

NEEDS = frozenset({Capability.OWN_CODE})

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_MAX_DESCRIPTION = 2_048
_MAX_DEADLINE = 3_600.0
_KINDS: Mapping[str, Kind] = {kind: kind for kind in get_args(Kind)}
_LEVELS = {level.flag: level for level in Permission}


class Declared(TypedDict, total=False):
    """Optional declarations of a tool; missing ones get the safest default."""

    is_read_only: bool
    """The tool changes nothing. Default: false."""
    is_concurrency_safe: bool
    """Its calls may run concurrently with unsafe ones. Default: false."""
    is_destructive: bool
    """It may overwrite or delete data. Default: true, unless it only reads."""
    is_open_world: bool
    """It reaches beyond this machine. Default: true, unless the server has no network."""
    is_idempotent: bool
    """A second identical call has no further effect. Default: false, unless it only reads."""
    permission: Permission
    """The permission mode the server needs. Default: read-only if it only reads, else danger-full-access."""
    check_permissions: Check
    """Refuses a call by raising PermissionError; permits it by returning None or True."""
    requires: RequirementSet | Mapping[str, object]
    """All that its arguments may name: files, hosts or commands. Default: anything. Counts in the server."""
    kind: Kind
    """The Agent Client Protocol's tool kind. Default: other."""
    deadline: float
    """Timeout of a call in seconds. Default: 60."""


def declared_spec(
    name: str,
    description: str,
    declared: Mapping[str, object],
    form: ArgumentForm,
    run: Callable[[Args, Runtime], Awaitable[Output]],
) -> ToolSpec:
    """The tool as declared. Raises: RegistrationError: a declaration is wrong or contradicts another."""
    check_names(name, description)
    reads = _flag(name, declared, "is_read_only")
    cheapest = Permission.READ_ONLY if reads else Permission.DANGER_FULL_ACCESS
    permission = _choice(name, declared, "permission", _LEVELS, cheapest)
    only_reads = permission is Permission.READ_ONLY
    if reads is not None and reads != only_reads:
        raise RegistrationError(f"{name}: is_read_only and permission contradict each other")
    destructive = _flag(name, declared, "is_destructive")
    if only_reads and destructive:
        raise RegistrationError(f"{name}: a read-only tool cannot be destructive")
    idempotent = _flag(name, declared, "is_idempotent")
    deadline = _deadline(name, declared)
    return ToolSpec(
        name=name,
        description=description.strip(),
        permission=permission,
        needs=NEEDS,
        args=form.args,
        run=run,
        kind=_choice(name, declared, "kind", _KINDS, "other"),
        requires=_requires(name, declared),
        subjects=lambda args: tuple(texts_in(args.model_dump(mode="json"))),
        destructive=not only_reads if destructive is None else destructive,
        idempotent=only_reads if idempotent is None else idempotent,
        open_world=_flag(name, declared, "is_open_world"),
        serial=not _flag(name, declared, "is_concurrency_safe"),
        may_be_long=deadline > Limits().deadline,
        limits=Limits(deadline=deadline),
        profile=Profile.DEFAULT,
        custom_schema=form.checked,
    )


def check_names(name: str, description: str) -> None:
    """Raises: RegistrationError: some client cannot handle the name or the description."""
    if not _NAME.fullmatch(name):
        raise RegistrationError(
            f"{name[:64]!r} is not a valid tool name: a letter or _, then up to 63 letters, digits, _ and -"
        )
    if not 0 < len(description.strip()) <= _MAX_DESCRIPTION:
        raise RegistrationError(f"{name}: the description must have 1 to {_MAX_DESCRIPTION} characters")


def _flag(name: str, declared: Mapping[str, object], key: str) -> bool | None:
    value = declared.get(key)
    if callable(value):
        try:
            value = value()
        except Exception as error:
            raise RegistrationError(f"{name}: {key}() failed") from error
    if value is not None and not isinstance(value, bool):
        raise RegistrationError(f"{name}: {key} must be true or false")
    return value


def _choice(name: str, declared: Mapping[str, object], key: str, choices: Mapping[str, T], default: T) -> T:
    value = declared.get(key, default)
    given = value.flag if isinstance(value, Permission) else value
    if not isinstance(given, str) or given not in choices:
        raise RegistrationError(f"{name}: {key} must be one of {', '.join(choices)}")
    return choices[given]


def _requires(name: str, declared: Mapping[str, object]) -> RequirementSet | None:
    given = declared.get("requires")
    try:
        return None if given is None else RequirementSet.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise RegistrationError(
            f"{name}: requires.{'.'.join(map(str, first['loc']))}: {first['msg']}"
        ) from None


def _deadline(name: str, declared: Mapping[str, object]) -> float:
    value = declared.get("deadline", Limits().deadline)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _MAX_DEADLINE:
        raise RegistrationError(f"{name}: deadline must be seconds above 0, at most {_MAX_DEADLINE:g}")
    return float(value)


log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, eq=False)
class BuiltTool:
    """A tool made by `build_tool` or `define_tool`; see `Tool` for its members."""

    spec: ToolSpec
    """The tool as the server runs it."""
    input_schema: Mapping[str, JsonValue]
    """The schema as given."""
    prepare: Callable[[Payload, ToolContext], Callable[[], Awaitable[object]]]
    """Checks the arguments, and returns what runs the call. Raises: InvalidInput."""
    check: Check | None
    runs_hooks: bool = False
    """Whether `prepare` has the hooks of the context run."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def description(self) -> str:
        return self.spec.description

    async def execute(
        self, payload: Payload, context: ToolContext, *, checks_permissions: bool = False
    ) -> ToolResult:
        """Run one call; every failure becomes a result with an error, also that of `check_permissions` if it
        `checks_permissions`.

        The text of a `ToolError` becomes the error. For other exceptions only the type is reported; the log
        has the details.
        """
        started, hooked = time.perf_counter(), HookedCall()
        try:
            result = await self._result(payload, context, hooked, checks_permissions)
        except ToolError as error:
            result = ToolResult(output=None, error=noted(str(error), hooked.notes))
        except Exception as error:
            log.exception("%s failed", self.name)
            why = f"{self.name} failed: {type(error).__name__}. The log has the rest."
            result = ToolResult(output=None, error=why)
        took = (time.perf_counter() - started) * 1000
        return result if result.duration_ms else result.model_copy(update={"duration_ms": took})

    async def _result(
        self, payload: Payload, context: ToolContext, hooked: HookedCall, checks_permissions: bool
    ) -> ToolResult:
        """Run the call with its hooks; a changed one is checked anew. Raises: ToolError."""
        hooked.hooks = () if self.runs_hooks else context_hooks(context)
        while True:
            work = self.prepare(payload, context)
            if checks_permissions:
                await self._permit(payload, context)
            place = {"session_id": context.session_id, "cwd": context.working_directory}
            called = {"tool_name": self.name, "tool_input": payload, "tool_use_id": context.call_id}
            hooked.given = {**place, **called}
            if (changed := await hooked.before()) is None:
                break
            payload = changed
        if hooked.asks:
            raise Denied(f"{self.name} needs approval, and nobody can be asked: {' '.join(hooked.asks)}")

        async def running() -> ToolResult:
            result = as_result(await work())
            if hooked.hooks and result.error is not None:
                raise Failed(result.text)
            return result

        result = await hooked.around(running())
        text = noted(result.text, hooked.notes)
        return result.model_copy(update={"output": text}) if hooked.notes else result

    async def check_permissions(self, payload: Payload, context: ToolContext) -> None:
        """Check whether the call may run. Outside the server, a tool that may change something and has no
        check is refused; in the server, permission mode and rules decide.

        Raises:
            PermissionError: the call must not run.
        """
        try:
            await self._permit(payload, context)
        except Denied as error:
            raise PermissionError(str(error)) from None

    async def _permit(self, payload: Payload, context: ToolContext) -> None:
        if self.check is not None:
            await run_check(self.name, self.check, payload, context)
        elif not self.is_read_only():
            raise Denied(f"{self.name} may change something and has no check_permissions that allows it.")

    def is_read_only(self) -> bool:
        """Whether the tool changes nothing."""
        return self.spec.own_permission is Permission.READ_ONLY

    def is_concurrency_safe(self) -> bool:
        """Whether calls may run concurrently."""
        return not self.spec.serial


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
    takes: type[BaseModel] | Mapping[str, JsonValue] | Sequence[ToolParameter] | None = None,
    input_schema: Mapping[str, JsonValue] | None = None,
    **declared: Unpack[Declared],
) -> BuiltTool:
    """Build a tool from a function, sync or async, that returns text, a `ToolResult` or a JSON value.

    If `takes` is a model, the function is called as `run(model, context)`; if it is a JSON Schema or a list
    of parameters, as `run(dictionary, context)`; if it is None, as `run(context)`. `input_schema` replaces
    the schema of a model; arguments must fit both.

    Raises:
        RegistrationError: a declaration is unknown or invalid.
    """
    if isinstance(takes, type):
        form = from_model(name, takes, input_schema)
    elif input_schema is not None:
        raise RegistrationError(f"{name}: input_schema goes with a model")
    elif takes is None:
        form = from_schema(name, {"type": "object", "properties": {}}, lambda _: ())
    elif isinstance(takes, Sequence):
        form = from_parameters(name, takes)
    else:
        form = from_schema(name, takes)
    return _build(name, description, run, form, declared)


def as_built(tool: Tool) -> BuiltTool:
    """Build a tool from any object that is one. Raises: RegistrationError: one of its members is invalid."""
    if isinstance(tool, BuiltTool):
        return tool
    return build_tool({member: getattr(tool, member) for member in MEMBERS})


def as_entry(tool: Tool) -> Entry:
    """Return the registry entry of a tool. The dispatcher serializes calls of tools that are not
    concurrency-safe.

    Raises:
        RegistrationError: its name, description or schema is invalid.
    """
    return Entry(as_built(tool).spec, TOOLSET)


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
    check = declared.get("check_permissions")
    if check is not None and not callable(check):
        raise RegistrationError(f"{name}: check_permissions must be a function")

    async def body(args: Args, context: ToolContext) -> object:
        return await call_function(function, *form.decode(args), context)

    async def run(args: Args, rt: Runtime) -> Output:
        context = rt.origin
        if not context.working_directory:
            raise Denied(f"{name} has no folder to work in: the client left none of the server's roots.")
        if check is not None:
            # It can only refuse: mode and rules have already permitted the call.
            await run_check(name, check, args.model_dump(mode="json"), context)
        return _output(await body(args, context))

    def prepare(payload: Payload, context: ToolContext) -> Callable[[], Awaitable[object]]:
        return partial(body, parse(spec, payload), context)

    spec = declared_spec(name, description, declared, form, run)
    return BuiltTool(spec=spec, input_schema=form.given, prepare=prepare, check=check)


def _output(found: object) -> Output:
    result = as_result(found)
    if result.error is not None:
        images = f"\n[{len(result.images)} images are not sent with an error]" if result.images else ""
        raise Failed(result.text + images)
    return replace(
        found if isinstance(found, Output) else Output(""),
        text=result.text,
        images=result.images,
        resources=result.resources,
        state_update=result.state_update,
    )
