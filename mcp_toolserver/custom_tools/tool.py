"""The contract of a tool outside the server, and what crosses it."""

from collections.abc import Mapping
from typing import Protocol

from pydantic import BaseModel, ConfigDict, JsonValue

Payload = dict[str, JsonValue]
"""The arguments of a call, as JSON gives them."""


class ToolContext(BaseModel):
    """For whom a call runs. Frozen."""

    model_config = ConfigDict(frozen=True)

    working_directory: str
    """Absolute; in the server it is the first root."""
    session_id: str


class ToolResult(BaseModel):
    """What a call gives. Frozen."""

    model_config = ConfigDict(frozen=True)

    output: object
    """Text, or anything that JSON can say."""
    error: str | None = None
    """What went wrong, in words for a model; None on success."""
    duration_ms: float = 0.0


class Tool(Protocol):
    """What every tool offers. Any object with these members is one; nothing has to be inherited from."""

    @property
    def name(self) -> str:
        """By which it is called."""
        ...

    @property
    def description(self) -> str:
        """What a model reads."""
        ...

    @property
    def input_schema(self) -> Mapping[str, JsonValue]:
        """The JSON Schema of its arguments."""
        ...

    async def execute(self, payload: Payload, context: ToolContext) -> ToolResult:
        """Run one call. What fails is a result with an error."""
        ...

    async def check_permissions(self, payload: Payload, context: ToolContext) -> None:
        """Raises: PermissionError: the call must not run."""
        ...

    def is_read_only(self) -> bool:
        """Whether no call changes anything."""
        ...

    def is_concurrency_safe(self) -> bool:
        """Whether calls may run beside others."""
        ...
