"""A real server on stdio: after the end of input it answers what only reads, and ends what does more; what it
imports, and that the SDK is the SDK all the same."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.protocol.lines import Running, call, on_pipes, opening, running
from tests.support.families import Family, outcomes
from tests.support.live import Setup, connected, text
from tests.support.processes import until


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup.below(tmp_path, "danger-full-access")


@contextmanager
def piped(setup: Setup, era: str, *, to_file: bool = False) -> Generator[Running]:
    """A server between two pipes, or with its answers in a file, after the opening."""
    if to_file:
        stdin, to_server = os.pipe()
        stdout = os.open(setup.home / "answers", os.O_WRONLY | os.O_CREAT, 0o600)
        started = running(setup, (stdin, stdout), [to_server])
    else:
        started = on_pipes(setup)
    with started as server:
        server.say(*opening(era))
        yield server


async def all_answers(server: Running) -> list[dict[str, Any]]:
    """Everything that it answers after the end of its input, once it has ended."""
    found = b""
    with anyio.fail_after(30):
        while server.ends and (read := await anyio.to_thread.run_sync(os.read, server.ends[0], 1 << 16)):
            found += read
    await server.ended()
    found = found or (server.setup.home / "answers").read_bytes()
    return [json.loads(line) for line in found.splitlines()]


async def answers_by_id(server: Running) -> dict[int, dict[str, Any]]:
    return {answer["id"]: answer for answer in await all_answers(server)}


async def test_what_only_reads_is_answered_after_the_end_of_input_and_a_command_is_cancelled_before(
    setup: Setup,
) -> None:
    (setup.root / "a").write_text("here", encoding="utf-8")
    (setup.root / "b").write_text(('"' * 99 + "\n") * 1800, encoding="utf-8")
    family = Family()
    with piped(setup, "auto") as server:
        server.say(call("Sleep", 1, era="auto", duration_ms=4000))
        server.say(call("bash", 2, era="auto", command=family.command))
        await until(lambda: family.runs)
        server.say(call("no_such_tool", 3, era="auto"), call("read_file", 4, era="auto", path="a"))
        server.say(call("read_file", 5, era="auto", path="b"))
        server.close(server.ends[0])
        # It has been called, and its answer does not fit into the pipe.
        await until(lambda: outcomes(setup.home).count(("read_file", "output")) == 2)
        given = await all_answers(server)
    answers = {answer["id"]: answer for answer in given}
    assert answers.keys() == {0, 1, 2, 3, 4, 5}
    assert answers[1]["result"]["content"][0]["text"] == "Slept for 4000ms"
    assert answers[2]["error"]["code"] == -32000
    assert [answer["id"] for answer in given][-1] == 1
    assert answers[3]["error"]["code"] == -32602
    assert "here" in answers[4]["result"]["content"][0]["text"]
    # A pipe holds no more than 64 KiB, and JSON adds escapes.
    assert len(json.dumps(answers[5])) > 1 << 16
    assert family.is_gone
    assert server.process.returncode == 0
    assert {("Sleep", "output"), ("bash", "cancelled")} <= set(outcomes(setup.home))


@pytest.mark.long
async def test_what_only_reads_is_answered_into_a_file(setup: Setup) -> None:
    (setup.root / "a").write_text("here", encoding="utf-8")
    with piped(setup, "legacy", to_file=True) as server:
        server.say(call("Sleep", 1, duration_ms=1500), call("read_file", 2, path="a"))
        server.close(server.ends[0])
        answers = await answers_by_id(server)
    assert answers[1]["result"]["content"][0]["text"] == "Slept for 1500ms"
    assert "here" in answers[2]["result"]["content"][0]["text"]
    assert server.process.returncode == 0


@pytest.mark.long
async def test_a_read_that_takes_too_long_is_cancelled(setup: Setup) -> None:
    with piped(setup, "legacy") as server:
        server.say(call("Sleep", 1, duration_ms=60_000))
        server.close(server.ends[0])
        answers = await answers_by_id(server)
    assert answers[1]["error"]["code"] == -32000
    assert outcomes(setup.home) == [("Sleep", "cancelled")]


async def test_nothing_is_waited_for_that_nobody_reads(setup: Setup) -> None:
    with piped(setup, "legacy") as server:
        await server.first_answer()
        server.say(call("Sleep", 1, duration_ms=3000))
        server.close(*server.ends)
        await server.ended()
    # It would have come to its end within the time for reads.
    assert outcomes(setup.home) == [("Sleep", "cancelled")]


@pytest.mark.long
async def test_a_signal_ends_the_wait_for_reads(setup: Setup) -> None:
    family = Family()
    with piped(setup, "legacy") as server:
        server.say(call("Sleep", 1, duration_ms=4000))
        server.say(call("bash", 2, command=family.command))
        await until(lambda: family.runs)
        server.close(server.ends[0])
        # The command is cancelled, so the wait has begun.
        await until(lambda: family.is_gone)
        server.process.send_signal(signal.SIGTERM)
        assert await server.ended() == 143
    assert ("Sleep", "cancelled") in outcomes(setup.home)


NOT_ON_STDIO = ("mcp.client", "mcp.server.mcpserver", "mcp.server.sse")
ENGINES = tuple(
    f"mcp_toolserver.text.{name}"
    for name in ("calculator.", "documents.to_text", "edit.", "notebook.", "patch.plan", "tool_search")
)
"""What only calls of some tools need."""

LATER = """
from mcp_toolserver.protocol.stdio import lazy_sdk
lazy_sdk.load()
import sys
assert "mcp.client" not in sys.modules
import mcp, mcp.server
assert not hasattr(mcp, "__wrapped__") and "mcp.client" not in sys.modules
from mcp.server import MCPServer
assert mcp.Client.__module__ == "mcp.client.client"
assert mcp.server.MCPServer is MCPServer
assert not hasattr(mcp, "no_such_name")
"""


LISTING = """
import json, os

leave, server, target = os._exit, os.getpid(), open(os.environ["MODULE_LIST"], "w", encoding="utf-8")

def end(status):
    if os.getpid() == server:
        import sys
        json.dump(list(sys.modules), target)
        target.close()
    leave(status)

os._exit = end
"""
"""Lists what the server has imported when it ends; its forks list nothing."""


@pytest.mark.parametrize("era", ["legacy", pytest.param("auto", marks=pytest.mark.long)])
async def test_a_server_on_stdio_imports_neither_a_client_nor_the_engines_of_unused_tools(
    setup: Setup, era: str
) -> None:
    site, listed = setup.home / "site", setup.home / "modules"
    site.mkdir()
    (setup.root / "a").write_text("content\n", encoding="utf-8")
    (site / "sitecustomize.py").write_text(LISTING, encoding="utf-8")
    environ = {"PYTHONPATH": str(site), "MODULE_LIST": str(listed)}
    async with connected(replace(setup, environ=environ), era=era, read_timeout_seconds=60) as client:
        assert (await client.list_tools()).tools
        assert "content" in text(await client.call_tool("read_file", {"path": "a"}))
    loaded: list[str] = json.loads(listed.read_text(encoding="utf-8"))
    assert "mcp.server.lowlevel.server" in loaded
    assert not [name for name in loaded if name.startswith((*NOT_ON_STDIO, *ENGINES))]


def test_what_was_left_out_comes_when_it_is_asked_for() -> None:
    subprocess.run([sys.executable, "-c", LATER], check=True)
