"""Declares the tasks extension, and reads its requests.

`tasks` is imported with the first request of a client that supports it, because few clients do and all wait
for the start.
"""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as mcp
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_NAME_HEADER, decode_header_value

from mcp_toolserver.protocol.mcp_server import ToolServer
from mcp_toolserver.protocol.translate import Context, is_stateless

if TYPE_CHECKING:
    from mcp_toolserver.protocol.tasks.tasks import Tasks

EXTENSION = "io.modelcontextprotocol/tasks"
"""The key of the feature in the lifespan state."""

GROUP = f"{EXTENSION} group"
"""The key of the task group in the lifespan state."""

LISTENED = "taskIds"
"""The key of task ids in the filter of `subscriptions/listen`."""

PREFIX = "task_"

_FORM = re.compile(rf"{PREFIX}[0-9a-f]{{32}}")

_Answer = Callable[[Context, Any], Awaitable[Any]]
_Lifespan = Callable[[Server[Any]], AbstractAsyncContextManager[Any]]


class TaskFeature:
    """Wraps the handlers of calls and subscriptions, so it joins after them. `make` runs on first use."""

    def __init__(self, make: "Callable[[], Tasks]") -> None:
        self.tasks = cache(make)

    def join(self, server: ToolServer) -> None:
        server.extensions[EXTENSION] = {}
        answers: dict[str, Callable[[Tasks], _Answer]] = {
            "tasks/get": lambda tasks: tasks.get,
            "tasks/update": lambda tasks: tasks.update,
            "tasks/cancel": lambda tasks: tasks.cancel,
        }
        for method, chosen in answers.items():
            server.add_request_handler(method, mcp.RequestParams, self._required(chosen))
        self._extend_calls(server)
        self._extend_listening(server)
        server.lifespan = self._within(server.lifespan)

    def _required(self, chosen: "Callable[[Tasks], _Answer]") -> _Answer:
        async def answer(context: Context, params: mcp.RequestParams) -> Any:
            require(context)
            return await chosen(self.tasks())(context, params)

        return answer

    def _extend_calls(self, server: ToolServer) -> None:
        own = server.get_request_handler("tools/call")
        assert own is not None

        def call(context: Context, params: mcp.CallToolRequestParams) -> Awaitable[Any]:
            handler = self.tasks().call_tool if declares(context) else own.handler
            return handler(context, params)

        server.add_request_handler("tools/call", mcp.CallToolRequestParams, call)

    def _extend_listening(self, server: ToolServer) -> None:
        own = server.get_request_handler("subscriptions/listen")
        if own is None:
            return

        async def listen(context: Context, params: mcp.SubscriptionsListenRequestParams) -> Any:
            if LISTENED in (params.notifications.model_extra or {}):
                require(context)
                self.tasks()
            return await own.handler(context, params)

        server.add_request_handler("subscriptions/listen", mcp.SubscriptionsListenRequestParams, listen)

    def _within(self, lifespan: _Lifespan) -> _Lifespan:
        """Run tasks until the server ends."""

        @asynccontextmanager
        async def extended(server: Server[Any]) -> AsyncGenerator[dict[str, Any]]:
            async with lifespan(server) as state, anyio.create_task_group() as group:
                try:
                    yield {**state, EXTENSION: self, GROUP: group}
                finally:
                    group.cancel_scope.cancel()
                    if self.tasks.cache_info().currsize:
                        await self.tasks().cancel_running()

        return extended


def named(context: Context) -> str:
    """The task id of a request, in the form of all ids."""
    name = (context.params or {}).get("taskId")
    if not isinstance(name, str):
        raise MCPError(mcp.INVALID_PARAMS, "taskId must be a string.")
    headers: Mapping[str, str] = getattr(context.request, "headers", {})
    # Only streamable HTTP has these headers.
    if MCP_METHOD_HEADER in headers and decode_header_value(headers.get(MCP_NAME_HEADER)) != name:
        what = f"{MCP_NAME_HEADER} header does not match the request body's 'taskId' parameter"
        raise MCPError(mcp.HEADER_MISMATCH, what)
    if not _FORM.fullmatch(name):
        raise unknown()
    return name


def unknown() -> MCPError:
    """The error for an unknown task, or one of another client."""
    return MCPError(
        mcp.INVALID_PARAMS,
        "No task of yours has this taskId: it was never given, or what came of it is no longer kept.",
    )


def declares(context: Context) -> bool:
    """Whether the client declares the extension in this request; before 2026-07-28 none can."""
    declared = context.session.client_capabilities
    if declared is None or EXTENSION not in (declared.extensions or {}):
        return False
    return is_stateless(context)


def require(context: Context) -> None:
    """Refuse a client that does not declare the extension."""
    if not is_stateless(context):
        raise MCPError(mcp.METHOD_NOT_FOUND, "Method not found", context.method)
    if not declares(context):
        lacking = f"The client must declare the extension {EXTENSION}."
        required = {"requiredCapabilities": {"extensions": {EXTENSION: dict[str, str]()}}}
        raise MCPError(mcp.MISSING_REQUIRED_CLIENT_CAPABILITY, lacking, required)
