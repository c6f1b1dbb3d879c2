"""Tasks of real servers: over each transport, for clients that come back, and for those of the older era."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from mcp import Client

from mcp_toolserver.protocol.tasks.task import CANCELLED
from mcp_toolserver.stores.tasks import SHUT_DOWN
from tests.support.families import outcomes
from tests.support.following import PATIENCE, Follower, options, said
from tests.support.live import Setup, connected, connected_to, serving, text
from tests.support.processes import Daemons, arguments, processes

LONG = "echo begun; sleep 1.5; echo at the end"


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    (tmp_path / "root").mkdir()
    return Setup(root=tmp_path / "root", home=tmp_path, mode="danger-full-access")


def sleeping(mark: str) -> Sequence[int]:
    return [pid for pid in processes() if arguments(pid) == ["sleep", mark]]


async def test_a_long_command_is_followed_and_can_be_ended(setup: Setup) -> None:
    mark = Daemons().mark
    async with connected(setup, "http", **options()) as connection:
        client = Follower(connection)
        done = await client.begun("bash", command=LONG)
        endless = await client.begun("bash", command=f"sleep {mark}")
        assert "begun" not in str(await client.get(endless))
        state = await client.ended(done)
        assert "begun\nat the end" in said(state["result"])
        assert sleeping(mark)
        await client.cancel(endless)
        state = await client.ended(endless)
        assert (state["status"], state["statusMessage"]) == ("cancelled", CANCELLED)
        assert not sleeping(mark)
        quick = await client.call("bash", command="echo at once")
        assert said(quick).startswith("at once")
        state = await client.until(
            await client.begun("bash", command="sleep 30", description="a nap"),
            lambda state: state.get("statusMessage"),
        )
        assert "a nap: running for" in state["statusMessage"]
    # The last one runs until its server ends.
    assert outcomes(setup.home) == [("bash", outcome) for outcome in ("output", "cancelled") * 2]


async def test_the_next_server_on_stdio_knows_what_came_of_tasks(setup: Setup) -> None:
    mark = Daemons().mark
    async with connected(setup, **options()) as connection:
        client = Follower(connection)
        done = await client.begun("bash", command=LONG)
        endless = await client.begun("bash", command=f"sleep {mark}")
        await client.ended(done)
    assert not sleeping(mark)
    async with connected(setup, **options()) as connection:
        client = Follower(connection)
        assert "begun\nat the end" in said((await client.get(done))["result"])
        state = await client.get(endless)
        assert (state["status"], state["statusMessage"]) == ("cancelled", SHUT_DOWN)


async def test_another_connection_over_http_follows_a_task_and_not_a_background_command(
    setup: Setup,
) -> None:
    """The command is in the background, because in the older era there are no tasks."""
    command = "echo begun; until [ -e go ]; do sleep 0.05; done; echo at the end"
    config = setup.home / "config.toml"
    config.write_text("foreground-seconds = 0.5\n", encoding="utf-8")
    with serving(replace(setup, flags=("--config", str(config))), "http") as url:
        async with (
            connected_to(url, "http", **options(mode="legacy")) as own,
            connected_to(url, "http", mode="legacy") as other,
        ):
            async with connected_to(url, "http", **options()) as connection:
                task = await Follower(connection).begun("bash", command=command)
            handle = handed_over(text(await own.call_tool("bash", {"command": command})))
            assert (await other.call_tool("TaskOutput", {"task_id": handle})).is_error
            async with connected_to(url, "http", **options()) as connection:
                client = Follower(connection)
                assert (await client.get(task))["status"] == "working"
                (setup.root / "go").touch()
                assert "begun\nat the end" in said((await client.ended(task))["result"])
            assert "begun\nat the end" in await whole(own, handle)


def handed_over(state: str) -> str:
    """The handle of the background command that a call has become."""
    found = re.search(r"bg_[0-9a-f]+", state)
    assert found is not None, state
    return found[0]


async def whole(client: Client, handle: str) -> str:
    """What a background command prints, once it has ended."""
    with anyio.fail_after(PATIENCE):
        while True:
            query = {"task_id": handle, "offset": 0, "until": "end", "wait_ms": 2000}
            state = text(await client.call_tool("TaskOutput", query))
            if "exit status" in state:
                return state


async def test_what_rules_forbid_in_a_command_is_not_written_to_one(setup: Setup) -> None:
    config = setup.home / "config.toml"
    config.write_text('[rules]\ndeny = ["bash(rm *)"]\n', encoding="utf-8")
    (setup.root / "kept").touch()
    async with connected(replace(setup, flags=("--config", str(config)))) as client:
        shell = {"command": "bash", "run_in_background": True, "open_stdin": True}
        task = re.findall(r"bg_\w{6}", text(await client.call_tool("bash", shell)))[0]
        refused, sent = [
            await client.call_tool("SendMessage", {"to": task, "message": message})
            for message in ("true; rm kept", "ls")
        ]
        assert "bash(rm *)" in text(refused)
        assert refused.is_error
        assert not sent.is_error
        assert "kept" in text(await client.call_tool("TaskOutput", {"task_id": task}))
