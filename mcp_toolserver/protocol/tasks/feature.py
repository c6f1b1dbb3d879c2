"""Declares the tasks extension.

`tasks` is imported with the first request of a client that supports it, because few clients do and all wait
for the start.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as mcp
from mcp.server.lowlevel import Server

from mcp_toolserver.lazy import Lazy
from mcp_toolserver.protocol.mcp_server import ToolServer
from mcp_toolserver.protocol.tasks.request import EXTENSION, GROUP, LISTENED, declares, require
from mcp_toolserver.protocol.translate import Context

if TYPE_CHECKING:
    from mcp_toolserver.protocol.tasks.tasks import Tasks

_Answer = Callable[[Context, Any], Awaitable[Any]]
_Lifespan = Callable[[Server[Any]], AbstractAsyncContextManager[Any]]


class TaskFeature:
    """Wraps the handlers of calls and subscriptions, so it joins after them. `make` runs on first use."""

    def __init__(self, make: "Callable[[], Tasks]") -> None:
        self.tasks: Lazy[Tasks] = Lazy(make)

    def join(self, server: ToolServer) -> None:
        """Declare the extension, and handle its requests and calls."""
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

        async def call(context: Context, params: mcp.CallToolRequestParams) -> Any:
            if declares(context):
                return await self.tasks().call_tool(context, params)
            return await own.handler(context, params)

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
                    if self.tasks.made is not None:
                        await self.tasks.made.cancel_running()

        return extended
