"""A tool that was made from functions and declarations."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypedDict

from pydantic import JsonValue

from mcp_toolserver.capabilities.prices import Permission
from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.library.calling import called, captured
from mcp_toolserver.library.values import Payload, ToolContext, ToolResult
from mcp_toolserver.spec import Args, Kind

log = logging.getLogger(__name__)

Check = Callable[[Payload, ToolContext], object]


class Declared(TypedDict, total=False):
    """What a tool says of itself. What it does not say is taken for the worst."""

    is_read_only: bool
    """It changes nothing. Default: it does."""
    is_concurrency_safe: bool
    """Its calls may run beside others that are not safe. Default: they may not."""
    is_destructive: bool
    """It may overwrite or delete what was there. Default: yes, unless it only reads."""
    is_idempotent: bool
    """A second call like the first changes nothing more. Default: no, unless it only reads."""
    permission: Permission
    """The mode that the server must have. Default: read-only if it only reads, else danger-full-access."""
    check_permissions: Check
    """Raises PermissionError for a call that must not run; gives nothing, or True, for one that may."""
    kind: Kind
    """The Agent Client Protocol's kind of tool. Default: other."""
    deadline: float
    """Seconds that the server gives a call. Default: 60."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BuiltTool:
    """A tool; made by `build_tool` or `define_tool`."""

    name: str
    description: str
    input_schema: Mapping[str, JsonValue]
    """As it was given."""
    checked_schema: Mapping[str, JsonValue]
    """The same, with unknown arguments refused; calls are held to it."""
    refusal: Callable[[JsonValue], str | None]
    """What is wrong with arguments; never what they are."""
    decode: Callable[[Payload], object]
    """Arguments that fit, as the body takes them."""
    body: Callable[..., object]
    """Called with them and the context."""
    check: Check | None
    permission: Permission
    kind: Kind
    concurrency_safe: bool
    destructive: bool
    idempotent: bool
    deadline: float
    args: type[Args] | None = None
    """Where the arguments are a model of the server's own kind, which marks paths and addresses."""

    async def execute(self, payload: Payload, context: ToolContext) -> ToolResult:
        """Run one call; whatever fails is a result with an error."""

        async def work() -> object:
            if why := self.refusal(payload):
                raise InvalidInput(f"{self.name} cannot use these arguments: {why}.")
            return await called(self.body, self.decode(payload), context)

        return await captured(self.name, work)

    async def check_permissions(self, payload: Payload, context: ToolContext) -> None:
        """Nothing, when the call may run. A tool that may change something and has no check of its own is
        refused; in the server its permission mode and rules decide that instead.

        Raises:
            PermissionError: it must not.
        """
        if self.check is not None:
            await asked(self.name, self.check, payload, context)
        elif not self.is_read_only():
            raise PermissionError(
                f"{self.name} may change something and has no check_permissions that allows it."
            )

    def is_read_only(self) -> bool:
        """Whether no call changes anything."""
        return self.permission is Permission.READ_ONLY

    def is_concurrency_safe(self) -> bool:
        """Whether calls may run beside others."""
        return self.concurrency_safe


async def asked(name: str, check: Check, payload: Payload, context: ToolContext) -> None:
    """Ask a tool's own check. Only nothing and True permit.

    Raises:
        PermissionError: it refuses, or fails.
    """
    try:
        answer = await called(check, payload, context)
    except PermissionError as error:
        # What the system refuses has a number; the words with it are not for a model.
        raise error if error.errno is None else PermissionError(f"{name} refuses this call.") from None
    except Exception:
        log.exception("the check of %s failed", name)
        raise PermissionError(f"{name} could not check whether this call may run.") from None
    if answer is not None and answer is not True:
        raise PermissionError(f"{name} refuses this call.")
