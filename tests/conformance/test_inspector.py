"""What the MCP Inspector says of the schemas of all tools."""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from mcp_toolserver.pipeline.registry import discover
from tests.support.live import Setup
from tests.support.official import node

pytestmark = pytest.mark.long

INSPECTOR = ("@modelcontextprotocol/inspector", "clients/cli/build/index.js")

ALL = [sys.executable, "-m", "tests.conformance.every_tool"]


async def inspected(setup: Setup, command: Sequence[str]) -> tuple[int | None, set[str], str]:
    """The exit status, the tools listed and what was said of them."""
    process = await asyncio.create_subprocess_exec(
        *node(*INSPECTOR), "--cli", "--strict", "--method", "tools/list", "--", *command,
        env=setup.environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        with anyio.fail_after(60):
            out, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    tools = json.loads(out)["tools"] if process.returncode == 0 else []
    return process.returncode, {tool["name"] for tool in tools}, said.decode()


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup.below(tmp_path, "danger-full-access")


async def test_the_inspector_has_nothing_to_say_of_the_tools_that_are_served(setup: Setup) -> None:
    status, names, said = await inspected(setup, setup.command)
    assert (status, said) == (0, "")
    assert "bash" in names


async def test_the_inspector_has_nothing_to_say_of_any_tool(setup: Setup) -> None:
    status, names, said = await inspected(setup, ALL)
    assert (status, said) == (0, "")
    assert names == {entry.spec.name for entry in discover()}
