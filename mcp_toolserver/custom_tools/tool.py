"""Defines the interface of a custom tool and the values that cross it."""

from collections.abc import Mapping
from typing import Protocol

from pydantic import BaseModel, ConfigDict, JsonValue

from mcp_toolserver.tool_spec import ToolContext

Payload = dict[str, JsonValue]
"""The arguments of a call as JSON."""


class ToolResult(BaseModel):
    """The result of a call. Immutable."""

    model_config = ConfigDict(frozen=True)

    output: object
    """Text or a JSON value."""
    error: str | None = None
    """The error for the model; None on success."""
    duration_ms: float = 0.0


class Tool(Protocol):
    """The interface of a tool. Any object with these members is a tool; no base class is needed."""

    @property
    def name(self) -> str:
        """The name for calls."""
        ...

    @property
    def description(self) -> str:
        """The description for the model."""
        ...

    @property
    def input_schema(self) -> Mapping[str, JsonValue]:
        """JSON Schema of the arguments."""
        ...

    async def execute(self, payload: Payload, context: ToolContext) -> ToolResult:
        """Run one call; failures are results with an error."""
        ...

    async def check_permissions(self, payload: Payload, context: ToolContext) -> None:
        """Check a call. Raises: PermissionError: the call must not run."""
        ...

    def is_read_only(self) -> bool:
        """Whether the tool changes nothing."""
        ...

    def is_concurrency_safe(self) -> bool:
        """Whether calls may run concurrently."""
        ...
