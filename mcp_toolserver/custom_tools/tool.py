"""Defines the interface of a custom tool, and calls its functions, sync or async."""

import inspect
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from anyio import to_thread
from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic_core import to_json

from mcp_toolserver.errors import Denied
from mcp_toolserver.pipeline.hooks import Hook
from mcp_toolserver.tool_spec import Image, Output, ResourceLink, ToolContext

Payload = dict[str, JsonValue]
"""The arguments of a call as JSON."""


class ToolResult(BaseModel):
    """The result of a call. Immutable."""

    model_config = ConfigDict(frozen=True, revalidate_instances="always")

    output: object
    """Text or a JSON value."""
    error: str | None = None
    """The error for the model; None on success."""
    duration_ms: float = 0.0
    images: tuple[Image, ...] = ()
    resources: tuple[ResourceLink, ...] = ()
    """References, which the text for the model names too."""
    state_update: Mapping[str, JsonValue] = Field(default_factory=dict)
    """Values for `ToolContext.state` of later calls, if this one succeeded."""

    @property
    def text(self) -> str:
        """The error or the output, as text for a model. Raises: ValueError: JSON cannot encode the output."""
        text = to_text(self.output) if self.error is None else self.error
        links = [f"[resource {link.name}: {link.uri}]" for link in self.resources if link.uri not in text]
        return "\n".join(filter(None, (text, *links)))


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


log = logging.getLogger(__name__)

Check = Callable[[Payload, ToolContext], object]


async def call_function(function: Callable[..., object], *arguments: object) -> object:
    """Call a function and return its result. A sync one runs in a thread, which a cancelled call does not
    wait for.

    Raises:
        RuntimeError: the function called sys.exit.
    """
    work = partial(function, *arguments)
    try:
        at_once = inspect.iscoroutinefunction(function)
        found = work() if at_once else await to_thread.run_sync(work, abandon_on_cancel=True)
        return await found if inspect.isawaitable(found) else found
    except SystemExit:
        raise RuntimeError("it tried to end the process") from None


def context_hooks(context: ToolContext) -> tuple[Hook, ...]:
    """The hooks of a context, each of which is about every call."""
    return tuple(
        Hook(name=f"{event} hook {number}", event=event, run=partial(call_function, function), timeout=60.0)
        for event, functions in context.hooks.items()
        for number, function in enumerate(functions, 1)
    )


async def run_check(name: str, check: Check, payload: Payload, context: ToolContext) -> None:
    """Run a tool's own check. Raises: Denied: it fails, or returns neither None nor True."""
    try:
        answer = await call_function(check, payload, context)
    except PermissionError as error:
        # An error with an errno comes from the system; a model must not see its text.
        raise Denied(str(error) if error.errno is None else f"{name} refuses this call.") from None
    except Exception:
        log.exception("the check of %s failed", name)
        raise Denied(f"{name} could not check whether this call may run.") from None
    if answer is not None and answer is not True:
        raise Denied(f"{name} refuses this call.")


def as_result(found: object) -> ToolResult:
    """Convert a function's return value to a result. Raises: see `to_text`."""
    if isinstance(found, Output):
        return ToolResult(
            output=found.text,
            images=found.images,
            resources=found.resources,
            state_update=found.state_update,
        )
    result = found if isinstance(found, ToolResult) else ToolResult(output=found)
    to_text(result.output)
    return result


def to_text(output: object) -> str:
    """Text as it is, None as nothing, other values as JSON. Raises: ValueError: JSON cannot encode it."""
    if output is None or isinstance(output, str):
        return output or ""
    return to_json(output).decode()
