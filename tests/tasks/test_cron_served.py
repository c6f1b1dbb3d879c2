"""Schedules of real servers, and with the commands `cron run` and `cron list`."""

import json
import re
import signal
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import anyio
import pytest

from mcp_toolserver.commands.cron import list_schedules
from mcp_toolserver.stores.board import StoredBoard
from mcp_toolserver.stores.cron import StoredRun, StoredSchedule, StoredSchedules
from mcp_toolserver.stores.database import Database
from tests.protocol.resource_clients import place, read
from tests.support.live import Messages, Setup, connected
from tests.tasks import schedules

SECONDS = 60.0


def stored(setup: Setup) -> Database:
    return Database(str(setup.home / "state"), [str(setup.root)])


async def only(setup: Setup) -> StoredSchedule:
    database = stored(setup)
    (found,) = await StoredSchedules(StoredBoard(database)).all()
    database.close()
    return found


async def ended(setup: Setup) -> StoredRun:
    """The first run, once it has ended."""
    with anyio.fail_after(SECONDS):
        while not (runs := (await only(setup)).runs) or runs[0].outcome in ("waiting", "running"):
            await anyio.sleep(0.1)
    return runs[0]


def cron(setup: Setup, *words: str) -> Sequence[str]:
    """The command line of `cron`."""
    program = setup.command.index("mcp_toolserver") + 1
    return [*setup.command[:program], "cron", *words, *setup.command[program:]]


@pytest.fixture
async def setup(tmp_path: Path) -> Setup:
    """How to start a server on a workspace with a schedule that missed an hour."""
    made = Setup(root=tmp_path / "root", home=tmp_path, mode="workspace-write")
    async with schedules.application(tmp_path) as app:
        await schedules.create(app, command="echo written > file; echo done", catch_up=True)
        await app.shared.database.run(
            lambda opened: opened.execute("UPDATE cron_schedules SET next = next - 3600") and None
        )
    return made


@pytest.mark.requirement("SW-69")
async def test_schedules_run_and_are_listed_without_a_client(
    setup: Setup, capsys: pytest.CaptureFixture[str]
) -> None:
    handle = (await only(setup)).handle
    server = subprocess.Popen(
        cron(setup, "run"), env=setup.environment, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    )
    try:
        assert (await ended(setup)).outcome == "succeeded"
        server.send_signal(signal.SIGINT)
        _, log = server.communicate(timeout=SECONDS)
    finally:
        server.kill()
    assert server.returncode == 128 + signal.SIGINT
    assert log.splitlines() == [
        f"mcp-toolserver cron: runs the schedules of {setup.root}; Ctrl-C ends it",
        f"mcp-toolserver cron: {handle} starts",
        f"mcp-toolserver cron: {handle} succeeded",
    ]
    assert (setup.root / "file").exists()
    with anyio.fail_after(SECONDS):
        shown = (await anyio.run_process(cron(setup, "list"), env=setup.environment)).stdout.decode()
    assert handle in shown
    assert "succeeded after" in shown
    assert shown.endswith("  owner: local\n\n")

    async def status() -> int:
        async with place(setup.home) as made:
            return await anyio.to_thread.run_sync(partial(list_schedules, made.app, as_json=True))

    assert await status() == 0
    (schedule,) = json.loads(capsys.readouterr().out)
    assert (schedule["handle"], schedule["owner"]) == (handle, "local")
    assert schedule["runs"][0]["output"] == "done"
    Path(stored(setup).path).write_bytes(b"no database")
    assert await status() == 1
    assert "is damaged" in capsys.readouterr().err


async def test_a_client_hears_of_the_end_of_its_work_and_reads_what_became_of_it(setup: Setup) -> None:
    heard = Messages()
    async with connected(setup, era="legacy", logging_callback=heard.take) as client:
        await client.call_tool("TaskCreate", {"command": "exit 3", "subject": "check"})
        said = [re.sub("_[0-9a-f]+", "", await heard.message()) for _ in range(2)]
        assert sorted(said) == [
            "cron (echo written > file; echo done) succeeded",
            "task (check) failed: exit status 3.",
        ]
        (schedule,) = json.loads(await read(client, "toolserver://schedules"))
        assert [(run["outcome"], run["output"]) for run in schedule["runs"]] == [("succeeded", "done")]
