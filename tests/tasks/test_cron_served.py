"""Schedules of real servers: over every protocol era, and with the commands `cron run` and `cron list`."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest
from mcp import Client

from mcp_toolserver.stores.board import StoredBoard
from mcp_toolserver.stores.cron import StoredRun, StoredSchedule, StoredSchedules
from mcp_toolserver.stores.database import Database
from tests.protocol.resource_clients import read
from tests.support.live import Messages, Setup, connected, text
from tests.tasks import schedules

SECONDS = 60.0


def stored(setup: Setup) -> Database:
    return Database(str(setup.home / "state"), [str(setup.root)])


async def only(setup: Setup) -> StoredSchedule:
    database = stored(setup)
    (found,) = await StoredSchedules(StoredBoard(database)).all()
    database.close()
    return found


async def set_back(setup: Setup) -> None:
    """Let an hour be missed."""
    database = stored(setup)
    await database.run(lambda opened: opened.execute("UPDATE cron_schedules SET next = next - 3600") and None)
    database.close()


async def ended(setup: Setup) -> StoredRun:
    """The first run, once it has ended."""
    with anyio.fail_after(SECONDS):
        while not (runs := (await only(setup)).runs) or runs[0].outcome in ("waiting", "running"):
            await anyio.sleep(0.1)
    return runs[0]


async def create(client: Client, command: str) -> str:
    arguments = {"schedule": "@hourly", "command": command, "time_zone": "UTC", "catch_up": True}
    result = await client.call_tool("CronCreate", arguments)
    (handle,) = set(re.findall(r"cron_[0-9a-f]+", text(result)))
    return str(handle)


def cron(setup: Setup, *words: str) -> Sequence[str]:
    """The command line of `cron`."""
    program = setup.command.index("mcp_toolserver") + 1
    return [*setup.command[:program], "cron", *words, *setup.command[program:]]


@pytest.mark.requirement("SW-69")
async def test_schedules_run_and_are_listed_without_a_client(tmp_path: Path) -> None:
    setup = Setup.below(tmp_path, "workspace-write")
    listing = cron(setup, "list")
    async with connected(setup) as client:
        handle = await create(client, "echo written > file; echo done")
    await set_back(setup)
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
    shown = await said(setup, listing)
    assert handle in shown
    assert "succeeded after" in shown
    assert shown.endswith("  owner: local\n\n")
    (schedule,) = json.loads(await said(setup, [*listing, "--json"]))
    assert (schedule["handle"], schedule["owner"]) == (handle, "local")
    assert schedule["runs"][0]["output"] == "done"
    Path(stored(setup).path).write_bytes(b"no database")
    result = await anyio.run_process(listing, env=setup.environment, check=False)
    assert result.returncode == 1
    assert b"is damaged" in result.stderr


async def test_a_client_hears_of_the_end_of_its_work_and_reads_what_became_of_it(tmp_path: Path) -> None:
    setup, heard = Setup(root=tmp_path / "root", home=tmp_path, mode="workspace-write"), Messages()
    async with schedules.application(tmp_path) as app:
        await schedules.create(app, command="echo done", catch_up=True)
    await set_back(setup)
    async with connected(setup, era="legacy", logging_callback=heard.take) as client:
        await client.call_tool("TaskCreate", {"command": "exit 3", "subject": "check"})
        said = [re.sub("_[0-9a-f]+", "", await heard.message()) for _ in range(2)]
        assert sorted(said) == ["cron (echo done) succeeded", "task (check) failed: exit status 3."]
        (schedule,) = json.loads(await read(client, "toolserver://schedules"))
        assert [(run["outcome"], run["output"]) for run in schedule["runs"]] == [("succeeded", "done")]


async def said(setup: Setup, command: Sequence[str]) -> str:
    assert command[0] == sys.executable
    with anyio.fail_after(SECONDS):
        return (await anyio.run_process(command, env=setup.environment)).stdout.decode()
