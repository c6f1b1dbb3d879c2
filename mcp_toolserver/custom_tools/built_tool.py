"""The tool class that `build_tool` and `define_tool` create."""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.custom_tools.arguments import parse
from mcp_toolserver.custom_tools.call import Check, as_result, run_check
from mcp_toolserver.custom_tools.tool import Payload, ToolContext, ToolResult
from mcp_toolserver.errors import ToolError
from mcp_toolserver.tool_spec import Args, ToolSpec

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, eq=False)
class BuiltTool:
    """A tool made by `build_tool` or `define_tool`."""

    spec: ToolSpec
    """The tool as the server runs it."""
    input_schema: Mapping[str, JsonValue]
    """The schema as given."""
    body: Callable[[Args, ToolContext], Awaitable[object]]
    check: Check | None

    @property
    def name(self) -> str:
        """The name for calls."""
        return self.spec.name

    @property
    def description(self) -> str:
        """The description for the model."""
        return self.spec.description

    async def execute(self, payload: Payload, context: ToolContext) -> ToolResult:
        """Run one call; every failure becomes a result with an error.

        The text of a `ToolError` becomes the error. For other exceptions only the type is reported; the log
        has the details.
        """
        started = time.perf_counter()
        try:
            result = as_result(await self.body(parse(self.spec, payload), context))
        except ToolError as error:
            result = ToolResult(output=None, error=str(error))
        except Exception as error:
            log.exception("%s failed", self.name)
            why = f"{self.name} failed: {type(error).__name__}. The log has the rest."
            result = ToolResult(output=None, error=why)
        took = (time.perf_counter() - started) * 1000
        return result if result.duration_ms else result.model_copy(update={"duration_ms": took})

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
        return self.spec.permission is Permission.READ_ONLY

    def is_concurrency_safe(self) -> bool:
        """Whether calls may run concurrently."""
        return not self.spec.serial
