"""An MCP client for the `demo` and `setup` commands."""

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TextIO

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import TextContent
from pydantic import JsonValue

from mcp_toolserver.errors import SettingsError


@dataclass(frozen=True, kw_only=True)
class Answer:
    text: str
    failed: bool


@dataclass(frozen=True)
class Connection:
    client: Client

    @property
    def server(self) -> str:
        """Name and version, as the server gives them."""
        info = self.client.server_info
        return f"{info.name} {info.version}" if info is not None else "a server without a name"

    @property
    def protocol(self) -> str:
        """The protocol revision agreed on."""
        return self.client.protocol_version

    async def tools(self) -> tuple[str, ...]:
        return tuple(tool.name for tool in (await self.client.list_tools()).tools)

    async def call(self, name: str, arguments: dict[str, JsonValue]) -> Answer:
        result = await self.client.call_tool(name, arguments)
        text = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
        return Answer(text=text, failed=bool(result.is_error))


@asynccontextmanager
async def connect(
    command: Sequence[str],
    *,
    cwd: str | None = None,
    errors: TextIO | None = None,
    env: dict[str, str] | None = None,
) -> AsyncGenerator[Connection]:
    """Start `command` in the folder `cwd` (default: the current one) and connect to it over stdio.

    Its standard error is the open file `errors` (default: that of this process). It gets the variables in
    `env`, and of this process those that clients pass on.

    Raises:
        OSError: there is no such program.
        SettingsError: the server ends, or answers with an error; the text says why.
    """
    parameters = StdioServerParameters(command=command[0], args=list(command[1:]), cwd=cwd, env=env)
    transport = stdio_client(parameters, errlog=errors or sys.stderr)
    async with AsyncExitStack() as stack:
        try:
            client = await stack.enter_async_context(Client(transport, read_timeout_seconds=30))
        except ExceptionGroup as failure:
            raise SettingsError(f"the server does not start: {cause(failure)}") from None
        yield Connection(client)


def cause(failure: BaseException) -> str:
    """The message of the first exception that is no group, or what kind it is, without a full stop."""
    nested: Sequence[BaseException] = getattr(failure, "exceptions", ())
    if nested:
        return cause(nested[0])
    if isinstance(failure, TimeoutError):
        return "it did not answer in time"
    return str(failure).rstrip(".") or type(failure).__name__
