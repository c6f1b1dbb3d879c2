"""A server on standard input and output that lists every tool there is, also those that this machine cannot
serve: what a client sees of a tool does not depend on the machine.
"""

from typing import Any

import anyio
import mcp_types as mcp
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.pipeline.registry import Registry, discover
from mcp_toolserver.protocol import translate
from tests.conformance.asking import Context


async def _listed(_: Context, __: mcp.PaginatedRequestParams | None) -> mcp.ListToolsResult:
    entries = Registry(discover()).entries.values()
    dear, beyond = Permission.DANGER_FULL_ACCESS, frozenset[Capability]()
    return mcp.ListToolsResult(tools=[translate.tool(entry, dear, beyond) for entry in entries])


async def _serve() -> None:
    server = Server[Any]("every-tool", on_list_tools=_listed)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(_serve)
