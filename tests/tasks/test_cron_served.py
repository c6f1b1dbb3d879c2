"""Schedules of real servers: over every protocol era, and with the commands `cron run` and `cron list`."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from mcp import Client

from mcp_toolserver.runtime.tasks.runner import RUNNING
from mcp_toolserver.stores.board import StoredBoard
from mcp_toolserver.stores.cron import StoredRun, StoredSchedule, StoredSchedules
from mcp_toolserver.stores.database import Database
from tests.protocol.resource_clients import read
from tests.support.extent import rounds
from tests.support.live import Messages, Setup, connected, text
from tests.tasks.test_board_killed import begun, call

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


async def test_deleting_a_schedule_stops_its_run(tmp_path: Path) -> None:
    setup = Setup.below(tmp_path, "workspace-write")
    async with connected(setup, era="legacy") as client:
        handle = await create(client, "touch begun; while :; do date +%N > alive; sleep 0.05; done")
        assert handle in text(await client.call_tool("CronList", {}))
    await set_back(setup)
    async with connected(setup, era="auto") as client:
        with anyio.fail_after(SECONDS):
            while not (setup.root / "begun").exists():
                await anyio.sleep(0.05)
            result = await client.call_tool("CronDelete", {"cron_id": handle})
            assert "its run is being stopped" in text(result)
            before, now = None, ""
            while before != now:
                before = now
                await anyio.sleep(0.5)
                now = (setup.root / "alive").read_text(encoding="utf-8")


@pytest.mark.requirement("SW-69")
async def test_schedules_run_and_are_listed_without_a_client(tmp_path: Path) -> None:
    setup = Setup.below(tmp_path, "workspace-write")
    listing = cron(setup, "list")
    assert await said(setup, listing) == "There are no schedules.\n"
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
    setup, heard = Setup.below(tmp_path, "workspace-write"), Messages()
    async with connected(setup) as client:
        await create(client, "echo done")
    await set_back(setup)
    async with connected(setup, era="legacy", logging_callback=heard.take) as client:
        await client.call_tool("TaskCreate", {"command": "exit 3", "subject": "check"})
        said = [re.sub("_[0-9a-f]+", "", await heard.message()) for _ in range(2)]
        assert sorted(said) == ["cron (echo done) succeeded", "task (check) failed: exit status 3."]
        (schedule,) = json.loads(await read(client, "toolserver://schedules"))
        assert [(run["outcome"], run["output"]) for run in schedule["runs"]] == [("succeeded", "done")]


@pytest.mark.rounds
async def test_each_of_many_jobs_runs_once_on_a_server_that_can_or_waits_with_a_reason(
    tmp_path: Path,
) -> None:
    """The servers: one that may only read, one without bash, and `cron run`."""
    jobs = rounds(12, 98)
    setup = Setup.below(tmp_path, "workspace-write")
    for base, count, one in ((0, jobs, setup), (1_000, 2, replace(setup, mode="danger-full-access"))):
        with begun(one) as server:
            note = call(server, "TaskCreate", subject="gate")["structuredContent"]["task"]["task_id"]
            needs = [note] if base else []
            for number in range(base, base + count):
                job = {"schedule": "@hourly", "time_zone": "UTC", "catch_up": True}
                call(server, "CronCreate", command=f"echo {number}c >> log", **job)
                script = f"until [ -e go ]; do sleep 0.05; done; echo {number}t >> log"
                call(server, "TaskCreate", command=script, blocked_by=needs)
            os.kill(server.pid, signal.SIGKILL)
    (setup.root / "go").touch()
    await set_back(setup)
    others = replace(setup, mode="read-only"), replace(setup, flags=("--exclude-tools", "bash"))
    with subprocess.Popen(cron(setup, "run"), env=setup.environment, stderr=subprocess.DEVNULL) as running:
        try:
            async with connected(others[0]) as reading, connected(others[1]):
                with anyio.fail_after(5 * SECONDS):
                    while await _unfinished(setup) > 2 + 2:
                        await anyio.sleep(0.2)
                shown = [text(await reading.call_tool(tool, {})) for tool in ("TaskList", "CronList")]
        finally:
            running.kill()
    # The words of `cron` and `doctor` have the same place.
    doctor = ["doctor" if word == "cron" else word for word in cron(setup, "--json")]
    found = await anyio.run_process(doctor, env=setup.environment, check=False)
    details = [one["detail"] for one in json.loads(found.stdout)["findings"] if "work that" in one["what"]]
    assert sorted(re.sub("_[0-9a-f]+", "", one) for one in details) == [
        *["cron needs danger-full-access"] * 2,
        *["task needs danger-full-access"] * 2,
    ]
    ran = Counter((setup.root / "log").read_text(encoding="utf-8").split())
    assert {*ran.values()} == {1}
    # The tasks that ran when their server was killed have failed.
    tasks = {f"{number}t" for number in range(RUNNING, jobs)}
    assert {*ran} == tasks | {f"{number}c" for number in range(jobs)}
    why = "needs the permission mode danger-full-access; this server has read-only"
    assert [listing.count(why) for listing in shown] == [2, 2]


async def _unfinished(setup: Setup) -> int:
    """The jobs that run or still have to."""
    database = stored(setup)
    (row,) = await database.rows(
        "SELECT (SELECT count(*) FROM board WHERE runs != '' AND status IN ('pending', 'in_progress')) + "
        "(SELECT count(*) FROM cron_schedules WHERE next <= strftime('%s', 'now') + 0) AS jobs",
        (),
    )
    database.close()
    return int(row["jobs"])


async def said(setup: Setup, command: Sequence[str]) -> str:
    assert command[0] == sys.executable
    with anyio.fail_after(SECONDS):
        return (await anyio.run_process(command, env=setup.environment)).stdout.decode()
