"""A server whose roots lie elsewhere than its client works says so before the first call."""

import os
from pathlib import Path
from typing import Any

import mcp_types as mcp
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from pydantic import FileUrl

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.protocol.instructions import LONGEST, EnforcementStatus, instructions
from mcp_toolserver.text import enforcement_summary
from tests.support.live import Setup, SharedServers, connected, text

APART = "is outside all roots"
STATUS = EnforcementStatus(
    mode=Permission.WORKSPACE_WRITE, commands=True, network=False, summary="x" * enforcement_summary.LONGEST
)


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    for name in ("root/inner", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    return Setup(root=tmp_path / "root", home=tmp_path)


@pytest.mark.parametrize(
    ("place", "era", "apart"),
    [("elsewhere", "legacy", True), ("elsewhere", "auto", True), ("root/inner", "legacy", False)],
)
async def test_a_server_started_outside_its_roots_says_so_in_its_instructions(
    place: str, era: str, apart: bool, setup: Setup
) -> None:
    folder = setup.home / place
    # The interpreter that runs the tests finds the package by the folder it is started in.
    environ = {**setup.environment, "PYTHONPATH": os.getcwd()}
    started = StdioServerParameters(command=setup.command[0], args=setup.command[1:], env=environ, cwd=folder)
    async with Client(started, mode=era, read_timeout_seconds=30) as client:
        said = client.instructions or ""
    assert (APART in said, str(folder) in said) == (apart, apart)


@pytest.mark.asyncio(loop_scope="session")
async def test_the_folder_of_a_server_over_http_says_nothing_of_its_clients(shared: SharedServers) -> None:
    client = await shared.client(shared.setup(), "http")
    assert client.instructions
    assert APART not in client.instructions


async def test_the_first_call_says_that_the_declared_roots_are_elsewhere(setup: Setup) -> None:
    async def roots(_: Any) -> mcp.ListRootsResult:
        return mcp.ListRootsResult(roots=[mcp.Root(uri=FileUrl((setup.home / "elsewhere").as_uri()))])

    async with connected(setup, list_roots_callback=roots) as client:
        result = await client.call_tool("ls", {})
        assert result.is_error
        assert "no folder that the client works in" in text(result)


def test_folders_meet_where_one_lies_in_the_other() -> None:
    for root, folder, apart in (
        ("/a/b", "/a/b", False),
        ("/a", "/a/b", False),
        ("/a/b", "/a", False),
        ("/a/b", "/", False),
        ("/", "/a", False),
        ("/a/b", "/a/bc", True),
        ("/a/b", "", False),
    ):
        assert (APART in instructions(STATUS, [root], folder)) is apart, (root, folder)


def test_a_long_folder_leaves_room_for_the_roots() -> None:
    text = instructions(STATUS, ["/a"], f"/{'x' * 4_000}")
    assert APART in text
    assert "- /a\n" in text
    assert len(text) <= LONGEST
