"""Calls user-defined functions, sync or async, and handles their exceptions."""

import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial

from anyio import to_thread
from pydantic_core import to_json

from mcp_toolserver.custom_tools.tool import ToolResult
from mcp_toolserver.errors import ToolError
from mcp_toolserver.tool_spec import Output

log = logging.getLogger(__name__)


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


async def run_captured(name: str, work: Callable[[], Awaitable[object]]) -> ToolResult:
    """Run a call of the tool `name` and return its result or error.

    The text of a `ToolError` becomes the error. For other exceptions only the type is reported; the log has
    the details.
    """
    started = time.perf_counter()
    try:
        result = as_result(await work())
    except ToolError as error:
        result = ToolResult(output=None, error=str(error))
    except Exception as error:
        log.exception("%s failed", name)
        result = ToolResult(
            output=None, error=f"{name} failed: {type(error).__name__}. The log has the rest."
        )
    took = (time.perf_counter() - started) * 1000
    return result if result.duration_ms else result.model_copy(update={"duration_ms": took})


def as_result(found: object) -> ToolResult:
    """Convert a function's return value to a result.

    Raises:
        ValueError: the value cannot be encoded as JSON.
    """
    if isinstance(found, Output):
        return ToolResult(output=found.text)
    result = found if isinstance(found, ToolResult) else ToolResult(output=found)
    to_text(result.output)
    return result


def to_text(output: object) -> str:
    """Convert an output to text: text is unchanged, None is empty, everything else becomes JSON.

    Raises:
        ValueError: the value cannot be encoded as JSON.
    """
    if output is None or isinstance(output, str):
        return output or ""
    return to_json(output).decode()
