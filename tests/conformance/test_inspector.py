"""What the MCP Inspector says of the schemas of all tools."""

import asyncio
import json
import sys
from typing import Any

import anyio
import mcp_types as mcp
import pytest
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.pipeline.registry import Registry, discover
from mcp_toolserver.protocol import translate
from tests.conformance.asking import Context
from tests.support.official import node

pytestmark = pytest.mark.long

INSPECTOR = ("@modelcontextprotocol/inspector", "clients/cli/build/index.js")

ALL = [sys.executable, "-m", "tests.conformance.test_inspector"]


async def test_the_inspector_has_nothing_to_say_of_any_tool() -> None:
    process = await asyncio.create_subprocess_exec(
        *node(*INSPECTOR), "--cli", "--strict", "--method", "tools/list", "--", *ALL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        with anyio.fail_after(60):
            out, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (process.returncode, said.decode()) == (0, "")
    assert {tool["name"] for tool in json.loads(out)["tools"]} == {entry.spec.name for entry in discover()}


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
