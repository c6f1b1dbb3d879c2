"""The real server with what the suite calls by name: the whole assembly, behind the gate with its token."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import mcp_types as mcp
from mcp.server.lowlevel import NotificationOptions
from mcp.shared.subscriptions import PromptsListChanged, ToolsListChanged

from mcp_toolserver.assembly import assemble
from mcp_toolserver.protocol.beside import Beside
from mcp_toolserver.protocol.feature import ToolServer
from mcp_toolserver.protocol.http import HttpOptions, bind, serve_http
from mcp_toolserver.protocol.notices import noticed
from mcp_toolserver.runtime.found_programs import Found
from mcp_toolserver.serving import mcp_server
from mcp_toolserver.settings import Settings
from tests.conformance.asking import Context
from tests.conformance.blocks import result, words
from tests.conformance.doorman import doorman
from tests.conformance.fixture_content import SuitePrompts, SuiteResources
from tests.conformance.fixture_tools import FIXTURES, Fixture
from tests.conformance.task_tools import TaskTools

TOKEN = "a-token-that-the-suite-cannot-send"  # one server's own, on loopback


class SuiteTools:
    """A feature that answers for the suite's tools, and leaves all others to the server."""

    def __init__(self) -> None:
        self._tools = {
            **FIXTURES,
            "test_trigger_tool_change": Fixture(run=self._tells(ToolsListChanged())),
            "test_trigger_prompt_change": Fixture(run=self._tells(PromptsListChanged())),
        }

    def beside(self, own: Beside) -> Beside:
        """What the server has beside tools, with what the suite reads and gets; any list may change."""
        self._beside = replace(
            own,
            sources=(SuiteResources(),),
            prompts=(SuitePrompts(),),
            changing=NotificationOptions(True, True, True),
        )
        return self._beside

    def join(self, server: ToolServer) -> None:
        """Stand before the server's own answers."""
        calls, lists = server.get_request_handler("tools/call"), server.get_request_handler("tools/list")
        assert calls is not None
        assert lists is not None

        async def call(context: Context, params: mcp.CallToolRequestParams) -> Any:
            fixture = self._tools.get(params.name)
            return await (calls.handler if fixture is None else fixture.run)(context, params)

        async def listed(context: Context, params: mcp.PaginatedRequestParams) -> mcp.ListToolsResult:
            found = await lists.handler(context, params)
            assert isinstance(found, mcp.ListToolsResult)
            mine = [fixture.listed(name) for name, fixture in self._tools.items()]
            return mcp.ListToolsResult(tools=[*found.tools, *mine])

        server.add_request_handler("tools/call", mcp.CallToolRequestParams, call)
        server.add_request_handler("tools/list", mcp.PaginatedRequestParams, listed)
        schema = server.get_tool_input_schema
        assert schema is not None
        server.get_tool_input_schema = lambda name: (
            self._tools[name].whole_schema if name in self._tools else schema(name)
        )

    def _tells(self, event: ToolsListChanged | PromptsListChanged) -> Callable[..., Awaitable[Any]]:
        async def run(_: Context, __: mcp.CallToolRequestParams) -> mcp.CallToolResult:
            self._beside.tell(noticed(event))
            return result(words("told"))

        return run


@asynccontextmanager
async def serving(folder: Path) -> AsyncGenerator[str]:
    """The server up; gives an address at which no token is needed."""
    root = folder / "root"
    root.mkdir()
    settings = Settings(root=(str(root),), state_dir=str(folder / "state"), toolsets=("all",))
    assembly = assemble(settings, None, Found(), held_by=0)
    with socket.create_server(("127.0.0.1", 0)) as outside:
        address = f"127.0.0.1:{outside.getsockname()[1]}"
        options = HttpOptions(token=TOKEN, names=(address,))
        sockets = bind(options.host, 0)
        up = asyncio.get_running_loop().create_future()
        tools = SuiteTools()
        server = mcp_server(assembly, (TaskTools(), tools), token=TOKEN, adapt=tools.beside)
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
            await assembly.aclose()
