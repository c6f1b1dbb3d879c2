"""The tool class that `build_tool` and `define_tool` create."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypedDict

from pydantic import JsonValue

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.custom_tools.call import call_function, run_captured
from mcp_toolserver.custom_tools.tool import Payload, ToolContext, ToolResult
from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.tool_spec import Args, Kind

log = logging.getLogger(__name__)

Check = Callable[[Payload, ToolContext], object]


class Declared(TypedDict, total=False):
    """Optional declarations of a tool; missing ones get the safest default."""

    is_read_only: bool
    """The tool changes nothing. Default: false."""
    is_concurrency_safe: bool
    """Its calls may run concurrently with unsafe ones. Default: false."""
    is_destructive: bool
    """It may overwrite or delete data. Default: true, unless it only reads."""
    is_idempotent: bool
    """A second identical call has no further effect. Default: false, unless it only reads."""
    permission: Permission
    """The permission mode the server needs. Default: read-only if it only reads, else danger-full-access."""
    check_permissions: Check
    """Refuses a call by raising PermissionError; permits it by returning None or True."""
    kind: Kind
    """The Agent Client Protocol's tool kind. Default: other."""
    deadline: float
    """Timeout of a call in seconds. Default: 60."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BuiltTool:
    """A tool made by `build_tool` or `define_tool`."""

    name: str
    description: str
    input_schema: Mapping[str, JsonValue]
    """The schema as given."""
    checked_schema: Mapping[str, JsonValue]
    """The schema that calls are checked against; it refuses unknown arguments."""
    find_errors: Callable[[JsonValue], str | None]
    """Describes errors in arguments without quoting their values."""
    decode: Callable[[Payload], object]
    """Converts valid arguments for the body."""
    body: Callable[..., object]
    """Called with the arguments and the context."""
    check: Check | None
    permission: Permission
    kind: Kind
    concurrency_safe: bool
    destructive: bool
    idempotent: bool
    deadline: float
    args: type[Args] | None = None
    """Set if the arguments are an `Args` model, which marks paths and URLs."""

    async def execute(self, payload: Payload, context: ToolContext) -> ToolResult:
        """Run one call; every failure becomes a result with an error."""

        async def work() -> object:
            if why := self.find_errors(payload):
                raise InvalidInput(f"{self.name} cannot use these arguments: {why}.")
            return await call_function(self.body, self.decode(payload), context)

        return await run_captured(self.name, work)

    async def check_permissions(self, payload: Payload, context: ToolContext) -> None:
        """Check whether the call may run. Outside the server, a tool that may change something and has no
        check is refused; in the server, permission mode and rules decide.

        Raises:
            PermissionError: the call must not run.
        """
        if self.check is not None:
            await run_check(self.name, self.check, payload, context)
        elif not self.is_read_only():
            raise PermissionError(
                f"{self.name} may change something and has no check_permissions that allows it."
            )

    def is_read_only(self) -> bool:
        """Whether the tool changes nothing."""
        return self.permission is Permission.READ_ONLY

    def is_concurrency_safe(self) -> bool:
        """Whether calls may run concurrently."""
        return self.concurrency_safe


async def run_check(name: str, check: Check, payload: Payload, context: ToolContext) -> None:
    """Run a tool's own check; only None and True permit the call.

    Raises:
        PermissionError: the check refuses or fails.
    """
    try:
        answer = await call_function(check, payload, context)
    except PermissionError as error:
        # An error with an errno comes from the system; a model must not see its text.
        raise error if error.errno is None else PermissionError(f"{name} refuses this call.") from None
    except Exception:
        log.exception("the check of %s failed", name)
        raise PermissionError(f"{name} could not check whether this call may run.") from None
    if answer is not None and answer is not True:
        raise PermissionError(f"{name} refuses this call.")
