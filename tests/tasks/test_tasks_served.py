"""Tasks of real servers: over each transport, for clients that come back, and for those of the older era."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from mcp import Client

from mcp_toolserver.stores.tasks import SHUT_DOWN
from tests.support.following import PATIENCE, Follower, options, said
from tests.support.live import Setup, connected, connected_to, serving, text
from tests.support.processes import Daemons, arguments, call, processes
from tests.support.workshop import workshop

LONG = "echo begun; sleep 1.5; echo at the end"


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    (tmp_path / "root").mkdir()
    return Setup(root=tmp_path / "root", home=tmp_path, mode="danger-full-access")


def sleeping(mark: str) -> Sequence[int]:
    return [pid for pid in processes() if arguments(pid) == ["sleep", mark]]


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


async def test_what_rules_forbid_in_a_command_is_not_written_to_one(tmp_path: Path) -> None:
    async with workshop(tmp_path, deny=("bash(rm *)",)) as server:
        (tmp_path / "root/kept").touch()
        shell = await call(server, "bash", command="bash", run_in_background=True, open_stdin=True)
        task = re.findall(r"bg_\w{6}", shell.text)[0]
        refused = await call(server, "SendMessage", to=task, message="true; rm kept")
        assert (refused.error, "bash(rm *)" in refused.text) == ("denied", True)
        assert (await call(server, "SendMessage", to=task, message="ls")).error is None
        assert "kept" in (await call(server, "TaskOutput", task_id=task)).text
