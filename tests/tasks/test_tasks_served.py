"""Tasks of a real server for a client that comes back, and what may be written to a command.

`test_handle_owners.py` has clients that come back over HTTP.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from mcp_toolserver.stores.tasks import SHUT_DOWN
from tests.support.following import Follower, options, said
from tests.support.live import Setup, connected
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


async def test_what_rules_forbid_in_a_command_is_not_written_to_one(tmp_path: Path) -> None:
    async with workshop(tmp_path, deny=("bash(rm *)",)) as server:
        (tmp_path / "root/kept").touch()
        shell = await call(server, "bash", command="bash", run_in_background=True, open_stdin=True)
        task = re.findall(r"bg_\w{6}", shell.text)[0]
        refused = await call(server, "SendMessage", to=task, message="true; rm kept")
        assert (refused.error, "bash(rm *)" in refused.text) == ("denied", True)
        assert (await call(server, "SendMessage", to=task, message="ls")).error is None
        assert "kept" in (await call(server, "TaskOutput", task_id=task)).text
