"""The real server with what the suite calls by name: the whole application, with its token."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import mcp_types as mcp
from mcp.server.lowlevel import NotificationOptions
from mcp.shared.subscriptions import PromptsListChanged, ToolsListChanged

from mcp_toolserver.app.compose import build_application
from mcp_toolserver.app.serve import mcp_server
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.pipeline.registry import Registry
from mcp_toolserver.protocol.http.gate import HttpOptions
from mcp_toolserver.protocol.http.server import bind, serve_http
from mcp_toolserver.protocol.mcp_server import ToolServer
from mcp_toolserver.protocol.resources.feature import ResourceFeature
from mcp_toolserver.protocol.resources.subscriptions import change_notification
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.settings import Settings
from tests.conformance.asking import Context, SuitePrompts, SuiteResources, result, words
from tests.conformance.fixture_tools import EXCHANGE, FIXTURES, TOOLS, Exchange, Fixture
from tests.conformance.task_tools import TaskTools

TOKEN = "a-token-that-the-suite-cannot-send"  # one server's own, on loopback


class SuiteTools:
    """A feature that takes what fixtures have for the client past the dispatcher, which they run in."""

    def __init__(self) -> None:
        self._fixtures = {
            **FIXTURES,
            "test_trigger_tool_change": Fixture(run=self._tells(ToolsListChanged())),
            "test_trigger_prompt_change": Fixture(run=self._tells(PromptsListChanged())),
        }

    def added_to(self, own: Dispatcher) -> Dispatcher:
        """The server's dispatcher, with the suite's tools in its registry."""
        mine = (*TOOLS, *(fixture.entry(name) for name, fixture in self._fixtures.items()))
        return replace(
            own,
            registry=Registry((*own.registry.entries.values(), *mine)),
            offered=own.offered | {entry.spec.name for entry in mine},
        )

    def adapt(self, own: ResourceFeature) -> ResourceFeature:
        """The server's resources and prompts, with those of the suite; any list may change."""
        self._adapted = replace(
            own,
            sources=(SuiteResources(), SuitePrompts()),
            changing=NotificationOptions(True, True, True),
        )
        return self._adapted

    def join(self, server: ToolServer) -> None:
        """Follow each call of a fixture through the server's own answers."""
        calls = server.get_request_handler("tools/call")
        assert calls is not None

        async def call(context: Context, params: mcp.CallToolRequestParams) -> Any:
            if params.name not in self._fixtures:
                return await calls.handler(context, params)
            exchange = Exchange(context=context, params=params)
            EXCHANGE.set(exchange)
            settled = await calls.handler(context, params)
            if exchange.error is not None:
                raise exchange.error
            return settled if exchange.answer is None else exchange.answer

        server.add_request_handler("tools/call", mcp.CallToolRequestParams, call)

    def _tells(self, event: ToolsListChanged | PromptsListChanged) -> Callable[..., Awaitable[Any]]:
        async def run(_: Context, __: mcp.CallToolRequestParams) -> mcp.CallToolResult:
            self._adapted.publish(change_notification(event))
            return result(words("announced"))

        return run


@asynccontextmanager
async def serving(folder: Path) -> AsyncGenerator[str]:
    """The server up; gives an address at which no token is needed."""
    root = folder / "root"
    root.mkdir()
    settings = Settings(root=(str(root),), state_dir=str(folder / "state"), toolsets=("all",))
    tools = SuiteTools()
    app = build_application(settings, None, HostExecutables(), held_by=0)
    app.dispatcher = tools.added_to(app.dispatcher)
    with socket.create_server(("127.0.0.1", 0)) as outside:
        address = f"127.0.0.1:{outside.getsockname()[1]}"
        options = HttpOptions(token=TOKEN, names=(address,))
        sockets = bind(options.host, 0)
        up = asyncio.get_running_loop().create_future()
        server = mcp_server(app, (TaskTools().join, tools.join), token=TOKEN, adapt=tools.adapt)
        task = asyncio.create_task(serve_http(server, options, sockets, sse=False, started=up.set_result))
        try:
            await asyncio.wait((task, up), timeout=10, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            async with doorman(outside, sockets[0].getsockname()[1], TOKEN):
                yield f"http://{address}/mcp"
        finally:
            task.cancel()
            await asyncio.wait((task,), timeout=10)
            await app.aclose()


_END = b"\r\n\r\n"


@asynccontextmanager
async def doorman(outside: socket.socket, inside: int, token: str) -> AsyncGenerator[None]:
    """Lead whoever comes to the socket `outside` on to the port `inside`, with a token in each request.

    The suite cannot send one, and the gate stays what it is in use. Each connection carries one request, so
    only its head is read.
    """

    async def admit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one request in, and the answer out, until either side has ended."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            lines = (await reader.readuntil(_END)).removesuffix(_END).split(b"\r\n")
            kept = [line for line in lines if not line.lower().startswith(b"connection:")]
            added = (b"Connection: close", b"Authorization: Bearer " + token.encode())
            answer, target = await asyncio.open_connection("127.0.0.1", inside)
            target.write(b"\r\n".join((*kept, *added)) + _END)
            async with anyio.create_task_group() as ways:

                async def relay(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
                    with suppress(ConnectionError):
                        while chunk := await source.read(65536):
                            to.write(chunk)
                            await to.drain()
                    ways.cancel_scope.cancel()

                ways.start_soon(relay, reader, target)
                ways.start_soon(relay, answer, writer)
            target.close()
        writer.close()

    async with await asyncio.start_server(admit, sock=outside):
        yield
