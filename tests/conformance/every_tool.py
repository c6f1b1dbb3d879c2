"""A server on standard input and output that lists every tool there is, also those that this machine cannot
serve: what a client is told of a tool does not depend on the machine.
"""

import anyio
import mcp_types as mcp

from mcp_toolserver.capabilities.prices import Capability, Permission
from mcp_toolserver.protocol import translate
from mcp_toolserver.protocol.feature import ToolServer
from mcp_toolserver.protocol.quota import Allowance
from mcp_toolserver.protocol.stdio import serve_stdio
from mcp_toolserver.registry import Registry, discover
from tests.conformance.asking import Context


async def _listed(_: Context, __: mcp.PaginatedRequestParams | None) -> mcp.ListToolsResult:
    entries = Registry(discover()).entries.values()
    dear, beyond = Permission.DANGER_FULL_ACCESS, frozenset[Capability]()
    return mcp.ListToolsResult(tools=[translate.tool(entry, dear, beyond) for entry in entries])


def _ended() -> None:
    """Nothing runs."""


if __name__ == "__main__":
    anyio.run(serve_stdio, ToolServer("every-tool", on_list_tools=_listed), Allowance(), _ended)
