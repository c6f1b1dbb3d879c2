"""The real server with what the suite calls by name: the whole assembly, behind the gate with its token."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as mcp
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError

from mcp_toolserver.assembly import assemble
from mcp_toolserver.protocol.feature import ToolServer
from mcp_toolserver.protocol.http import HttpOptions, bind, serve_http
from mcp_toolserver.runtime.found_programs import Found
from mcp_toolserver.serving import mcp_server
from mcp_toolserver.settings import Settings
from tests.conformance import asking, fixture_content
from tests.conformance.asking import Asked, Context
from tests.conformance.blocks import result, words
from tests.conformance.doorman import doorman
from tests.conformance.fixture_tools import FIXTURES, Fixture

TOKEN = "a-token-that-the-suite-cannot-send"  # one server's own, on loopback


class Fixtures:
    """A feature that answers for the suite's names, and leaves everything else to the server."""

    def __init__(self) -> None:
        self._bus = InMemorySubscriptionBus()
        self._tools = {
            **FIXTURES,
            "test_trigger_tool_change": Fixture(run=self._publish(ToolsListChanged())),
            "test_trigger_prompt_change": Fixture(run=self._publish(PromptsListChanged())),
        }

    def join(self, server: ToolServer) -> None:
        """Stand before the server's own answers."""
        _before(server, "tools/call", mcp.CallToolRequestParams, self._call)
        _before(server, "resources/read", mcp.ReadResourceRequestParams, self._read)
        _before(server, "resources/subscribe", mcp.SubscribeRequestParams, self._watch)
        _before(server, "resources/unsubscribe", mcp.UnsubscribeRequestParams, self._watch)
        _before(server, "prompts/get", mcp.GetPromptRequestParams, self._get)
        _before(server, "completion/complete", mcp.CompleteRequestParams, self._complete)
        tools = [fixture.listed(name) for name, fixture in self._tools.items()]
        _beside(server, "tools/list", mcp.ListToolsResult(tools=tools))
        _beside(server, "resources/list", mcp.ListResourcesResult(resources=[*fixture_content.RESOURCES]))
        templates = [fixture_content.TEMPLATE]
        _beside(
            server, "resources/templates/list", mcp.ListResourceTemplatesResult(resource_templates=templates)
        )
        _beside(server, "prompts/list", mcp.ListPromptsResult(prompts=[*fixture_content.PROMPTS]))
        server.add_request_handler(
            "subscriptions/listen", mcp.SubscriptionsListenRequestParams, ListenHandler(self._bus)
        )
        self._add_schemas(server)

    def _add_schemas(self, server: ToolServer) -> None:
        own = server.get_tool_input_schema
        assert own is not None
        server.get_tool_input_schema = lambda name: (
            self._tools[name].whole_schema if name in self._tools else own(name)
        )

    def _publish(self, event: ToolsListChanged | PromptsListChanged) -> Callable[..., Awaitable[Any]]:
        async def run(_: Context, __: mcp.CallToolRequestParams) -> mcp.CallToolResult:
            await self._bus.publish(event)
            return result(words("published"))

        return run

    async def _call(self, context: Context, params: mcp.CallToolRequestParams) -> object:
        fixture = self._tools.get(params.name)
        return None if fixture is None else await fixture.run(context, params)

    async def _read(self, _: Context, params: mcp.ReadResourceRequestParams) -> object:
        return fixture_content.contents(str(params.uri))

    async def _watch(self, _: Context, params: mcp.SubscribeRequestParams) -> object:
        return mcp.EmptyResult() if str(params.uri) == fixture_content.WATCHED else None

    async def _get(self, _: Context, params: mcp.GetPromptRequestParams) -> Asked | object:
        if params.name in asking.ROUNDS and (asked := asking.asked(params.name, params)) is not None:
            return asked
        return fixture_content.messages(params.name, params.arguments or {})

    async def _complete(self, _: Context, params: mcp.CompleteRequestParams) -> object:
        if getattr(params.ref, "name", "") != "test_prompt_with_arguments":
            return None
        return mcp.CompleteResult(completion=mcp.Completion(values=["test one", "test two"]))


def _before(
    server: ToolServer, method: str, params_type: type[Any], mine: Callable[[Context, Any], Awaitable[object]]
) -> None:
    """Answer with what `mine` gives; where that is None, as the server would."""
    own = server.get_request_handler(method)

    async def answer(context: Context, params: Any) -> Any:
        if (found := await mine(context, params)) is not None:
            return found
        if own is None:
            raise MCPError(mcp.INVALID_PARAMS, f"{method}: no such name")
        return await own.handler(context, params)

    server.add_request_handler(method, params_type, answer)


def _beside(server: ToolServer, method: str, mine: mcp.PaginatedResult) -> None:
    """List `mine` after what the server lists."""
    own = server.get_request_handler(method)

    async def listed(context: Context, params: mcp.PaginatedRequestParams) -> mcp.PaginatedResult:
        found = None if own is None else await own.handler(context, params)
        if not isinstance(found, mcp.PaginatedResult):
            return mine
        (name,) = mine.model_fields_set
        return found.model_copy(update={name: [*getattr(found, name), *getattr(mine, name)]})

    server.add_request_handler(method, mcp.PaginatedRequestParams, listed)


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
        server = mcp_server(assembly, (Fixtures(),))
        task = asyncio.create_task(serve_http(server, options, sockets, sse=False, started=up.set_result))
        try:
            await asyncio.wait((task, up), timeout=10, return_when=asyncio.FIRST_COMPLETED)
            async with doorman(outside, sockets[0].getsockname()[1], TOKEN):
                yield f"http://{address}/mcp"
        finally:
            task.cancel()
            await asyncio.wait((task,), timeout=10)
            await assembly.aclose()
