"""What the MCP Inspector says of the schemas of all tools."""

import asyncio
import json
import sys

import anyio
import pytest

from mcp_toolserver.pipeline.registry import discover
from tests.support.official import node

pytestmark = pytest.mark.long

INSPECTOR = ("@modelcontextprotocol/inspector", "clients/cli/build/index.js")

ALL = [sys.executable, "-m", "tests.conformance.every_tool"]


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
