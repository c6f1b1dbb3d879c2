"""What a client's folders and its declared roots mean for the roots of a real server."""

import asyncio
import os
import re
from collections.abc import Sequence
from dataclasses import replace
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
from tests.support.live import Setup, connected, connected_to, serving, text

APART = "is outside all roots"
STATUS = EnforcementStatus(
    mode=Permission.WORKSPACE_WRITE, commands=True, network=False, summary="x" * enforcement_summary.LONGEST
)


def named(folder: Path) -> mcp.ListRootsResult:
    return mcp.ListRootsResult(roots=[mcp.Root(uri=FileUrl(folder.as_uri()))])


Answer = mcp.ListRootsResult | mcp.ErrorData


def answering(answers: Sequence[Answer]) -> Any:
    """A client that gives the last of these answers to roots/list."""

    async def roots(_: object) -> Answer:
        return answers[-1]

    return roots


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    for name in ("root/inner", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    return Setup(root=tmp_path / "root", home=tmp_path)


async def test_a_server_started_outside_its_roots_says_so_in_its_instructions(setup: Setup) -> None:
    folder = setup.home / "elsewhere"
    # The interpreter that runs the tests finds the package by the folder it is started in.
    environ = {**setup.environment, "PYTHONPATH": os.getcwd()}
    started = StdioServerParameters(command=setup.command[0], args=setup.command[1:], env=environ, cwd=folder)
    async with Client(started, mode="auto", read_timeout_seconds=30) as client:
        said = client.instructions or ""
    assert APART in said
    assert str(folder) in said


@pytest.mark.long
@pytest.mark.parametrize(("use", "refused"), [("narrow", True), ("ignore", False)])
async def test_the_first_call_says_how_to_use_a_server_whose_roots_the_client_does_not_name(
    use: str, refused: bool, setup: Setup
) -> None:
    setup = replace(setup, flags=("--client-roots", use))
    roots = answering([named(setup.home / "elsewhere")])
    async with connected(setup, list_roots_callback=roots) as client:
        for tool, arguments in (("ls", {}), ("bash", {"command": "true"})):
            result = await client.call_tool(tool, arguments)
            assert result.is_error is refused, tool
            assert ("--client-roots ignore" in text(result)) is refused, tool


FIRST: dict[str, Answer] = {
    "the Inspector and mcp-use": mcp.ListRootsResult(roots=[]),
    "a proxy of FastMCP whose client has no roots": mcp.ErrorData(code=-32601, message="Method not found"),
}
"""What clients that declare roots and name none answer."""


async def test_a_client_that_names_no_roots_calls_tools_and_a_command_keeps_those_of_its_call(
    setup: Setup,
) -> None:
    (setup.root / "f").write_text("outer", encoding="utf-8")
    calls = (("read_file", {"path": "f"}), ("bash", {"command": "cat f"}))

    with serving(replace(setup, mode="workspace-write"), "http") as url:
        for answer in FIRST.values():
            answers = [answer]
            roots = answering(answers)
            async with connected_to(url, "http", mode="legacy", list_roots_callback=roots) as client:
                # The folder of the server says nothing of the client's.
                assert client.instructions
                assert APART not in client.instructions
                results = await asyncio.gather(*(client.call_tool(*call) for call in calls))
                assert ["outer" in text(result) for result in results] == [True, True], answer
                await keeps_its_roots(client, setup, answers)


async def keeps_its_roots(client: Client, setup: Setup, answers: list[Answer]) -> None:
    """Whether a command that runs keeps the root when its client names another."""

    async def said(tool: str, **arguments: object) -> str:
        return text(await client.call_tool(tool, arguments))

    script = f"cd {setup.root}; until rm inner/go; do sleep 0.1; done 2>&-; cat f"
    command = await said("bash", command=script, run_in_background=True)
    answers.append(named(setup.root / "inner"))
    await client.session.send_roots_list_changed()
    assert "outer" not in await said("bash", command=f"cat {setup.root}/f")
    assert (await said("glob_search", pattern="*")).startswith("No file matches")
    await said("write_file", path="go", content="")
    handle = re.findall(r"bg_\w+", command)[0]
    assert "outer" in await said("TaskOutput", task_id=handle, until="end", wait_ms=20_000)


def test_folders_meet_where_one_lies_in_the_other_and_a_long_one_leaves_room() -> None:
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
    text = instructions(STATUS, ["/a"], f"/{'x' * 4_000}")
    assert APART in text
    assert "- /a\n" in text
    assert len(text) <= LONGEST
