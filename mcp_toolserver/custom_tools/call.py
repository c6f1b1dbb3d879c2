"""Calling functions that somebody else wrote: sync or async, and whatever they raise."""

import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial

from anyio import to_thread
from pydantic_core import to_json

from mcp_toolserver.errors import ToolError
from mcp_toolserver.library.values import ToolResult
from mcp_toolserver.spec import Output

log = logging.getLogger(__name__)


async def called(function: Callable[..., object], *arguments: object) -> object:
    """What `function` gives. A sync one runs in a thread, which a cancelled call does not wait for.

    Raises:
        RuntimeError: it tried to end the process.
    """
    work = partial(function, *arguments)
    try:
        at_once = inspect.iscoroutinefunction(function)
        found = work() if at_once else await to_thread.run_sync(work, abandon_on_cancel=True)
        return await found if inspect.isawaitable(found) else found
    except SystemExit:
        raise RuntimeError("it tried to end the process") from None


async def captured(name: str, work: Callable[[], Awaitable[object]]) -> ToolResult:
    """The result of a call of the tool `name`, whatever becomes of it.

    The text of a `ToolError` is the error; of anything else only the kind is told, and the log has the rest.
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
    """What a function gave as a result.

    Raises:
        ValueError: JSON cannot say it.
    """
    if isinstance(found, Output):
        return ToolResult(output=found.text)
    result = found if isinstance(found, ToolResult) else ToolResult(output=found)
    told(result.output)
    return result


def told(output: object) -> str:
    """An output as text: text as it is, nothing as nothing, everything else as JSON.

    Raises:
        ValueError: JSON cannot say it.
    """
    if output is None or isinstance(output, str):
        return output or ""
    return to_json(output).decode()
