"""What CronCreate, CronList and CronDelete answer."""

import re
import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.app.compose import Application
from mcp_toolserver.capabilities.cron import Job, Schedule, ScheduledRun
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.runtime.clock import machine_zone
from mcp_toolserver.text.cron import at, detailed, listed
from tests.tasks.schedules import application, call, create, schedules_of

HANDLE = re.compile(r"cron_[0-9a-f]{32}")


@pytest.fixture
async def app(tmp_path: Path) -> AsyncGenerator[Application]:
    async with application(tmp_path) as made:
        yield made


@pytest.mark.requirement("SW-69")
@pytest.mark.parametrize("mode", list(Permission), ids=lambda mode: mode.flag)
async def test_a_schedule_is_created_listed_and_deleted_in_every_mode(
    tmp_path: Path, mode: Permission
) -> None:
    async with application(tmp_path, mode) as app:
        arguments = {"schedule": "@daily", "command": "make test", "description": "tests"}
        created = await call(app, "CronCreate", time_zone="Asia/Kathmandu", **arguments)
        assert created.data is not None, created.text
        handle = created.data["cron_id"]
        assert HANDLE.fullmatch(str(handle))
        following = datetime.fromisoformat(str(created.data["next_run_at"]))
        assert (following.hour, following.minute, following.utcoffset()) == (0, 0, timedelta(minutes=345))
        assert timedelta() < following - datetime.now(UTC) <= timedelta(days=1)
        shown = await call(app, "CronList")
        assert shown.data is not None
        assert shown.data["count"] == 1
        assert f"{handle}: tests\n  0 0 * * * in Asia/Kathmandu, next " in shown.text
        deleted = await call(app, "CronDelete", cron_id=handle)
        assert deleted.text == f"{handle} (0 0 * * *) is deleted."
        assert (await call(app, "CronDelete", cron_id=handle)).error == "not_found"
        assert (await call(app, "CronList", cron_id=handle)).error == "not_found"
        assert (await call(app, "CronList")).text == "There are no schedules."
        # The zone is that of the machine, and arguments of other servers are understood.
        created = await call(app, "CronCreate", name="nightly", schedule="@daily", command="true")
        assert created.data is not None, created.text
        following = datetime.fromisoformat(str(created.data["next_run_at"]))
        assert following.utcoffset() == following.astimezone().utcoffset()
        assert "nightly" in (await call(app, "CronList")).text
        assert (await call(app, "CronDelete", id=created.data["cron_id"])).error is None


REFUSED = (
    ("either a prompt or a command", {"schedule": "@daily"}),
    ("either a prompt or a command", {"schedule": "@daily", "command": " "}),
    ("either a prompt or a command", {"schedule": "@daily", "command": "a", "prompt": "b"}),
    ("five fields", {"schedule": "daily", "command": "a"}),
    ("day-of-month", {"schedule": "0 0 31 2 *", "command": "a"}),
    ("Europe/Paris", {"schedule": "@daily", "command": "a", "time_zone": "Europe/Pariss"}),
)


async def test_what_cannot_run_is_refused_or_stays_listed(app: Application) -> None:
    for says, arguments in REFUSED:
        result = await call(app, "CronCreate", **arguments)
        assert (result.error, says in result.text) == ("invalid_input", True), result.text
    # Nor is a prompt taken where there is no model.
    result = await call(app, "CronCreate", schedule="@daily", prompt="Look after the tests.", time_zone="UTC")
    assert result.error == "unavailable"
    assert "Give a command" in result.text
    handle = await create(app, command="true")
    await app.shared.database.run(
        lambda opened: opened.execute("UPDATE cron_schedules SET zone = 'Atlantis/Port', next = 0") and None
    )
    assert "in Atlantis/Port, next 1970-01-01T00:00+00:00" in (await call(app, "CronList")).text
    assert (await call(app, "CronDelete", cron_id=handle)).error is None


ZONES = (
    ("/usr/share/zoneinfo/Europe/Berlin", "Europe/Berlin", "Europe/Berlin"),
    ("/usr/share/zoneinfo/Etc/UTC", "Europe/Berlin", "Give one"),
    ("/somewhere", "UTC", "Give one"),
    ("", "UTC", "UTC"),
)
"""Where /etc/localtime leads, the variable TZ, and what the zone is."""


def test_the_zone_of_the_machine_has_a_name_or_must_be_given(tmp_path: Path) -> None:
    for number, (link, variable, says) in enumerate(ZONES):
        place = tmp_path / str(number)
        if link:
            place.symlink_to(link)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TZ", variable)
            time.tzset()
            try:
                found = machine_zone(str(place))
            except InvalidInput as error:
                found = str(error)
        time.tzset()
        assert says in found, (link, variable)
    (tmp_path / "localtime").write_bytes(b"TZif")
    with pytest.raises(InvalidInput, match="Give one"):
        machine_zone(str(tmp_path / "localtime"))


async def test_missed_times_are_reported_also_before_a_server_looks(tmp_path: Path) -> None:
    async with application(tmp_path) as app:
        handle = await create(app, command="true")
        caught_up = await create(app, command="true", catch_up=True)
        await app.shared.database.run(
            lambda opened: opened.execute("UPDATE cron_schedules SET next = next - 10 * 3600") and None
        )
        stored = {one.handle: one for one in await schedules_of(app).all()}
        shown = await call(app, "CronList")
        assert shown.data is not None
        crons: Any = shown.data["crons"]
        missed = {one["cron_id"]: one["missed"] for one in crons}
        # At the first minute of an hour, the last time is still to be run.
        assert missed[handle] in (9, 10)
        assert missed[caught_up] == 9
        assert {one.missed for one in stored.values()} == {0}
        assert "no server ran that could run it" in shown.text


NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def scheduled(*runs: ScheduledRun, following: datetime | None = NOON) -> Schedule:
    return Schedule(
        handle="cron_1",
        fields="0 12 * * *",
        zone="UTC",
        job=Job(kind="prompt", text="Look at the tests.\nThen repair them."),
        description="",
        catch_up=True,
        once=False,
        waits="",
        created=NOON,
        next=following,
        missed=2,
        last_missed=NOON,
        run_count=len(runs),
        runs=runs,
    )


RUNS = (
    ScheduledRun(due=NOON, started=NOON, ended=None, outcome="running", output=""),
    ScheduledRun(due=NOON, started=NOON, ended=None, outcome="interrupted", output=""),
    ScheduledRun(
        due=NOON, started=NOON, ended=NOON + timedelta(seconds=7), outcome="failed", output="one\ntwo\n"
    ),
    ScheduledRun(due=NOON, started=NOON, ended=NOON, outcome="succeeded", output="x" * 200),
)


def test_the_last_three_runs_are_listed_with_their_first_line_and_all_in_full_of_a_single_schedule() -> None:
    assert listed(scheduled(RUNS[3])).endswith("x" * 160 + " …")
    still = replace(RUNS[0], due=NOON - timedelta(hours=1))
    assert f"the last {at(NOON)}: the run before had not ended" in listed(scheduled(still))
    shown = detailed(scheduled(*RUNS, following=None))
    assert "never again" in shown
    assert "Then repair them." in shown
    assert "failed after 7 s\none\ntwo\n" in shown
    assert shown.endswith(f"succeeded after 0 s\n{'x' * 200}")
    assert listed(scheduled(*RUNS)) == (
        "cron_1\n"
        "  0 12 * * * in UTC, next 2026-06-01T12:00+00:00, catches up\n"
        "  prompt: Look at the tests. …\n"
        "  missed 2, the last 2026-06-01T12:00+00:00: no server ran that could run it\n"
        "  runs: 4; the last ones:\n"
        "    2026-06-01T12:00+00:00 running since 2026-06-01T12:00+00:00\n"
        "    2026-06-01T12:00+00:00 interrupted, because its server ended; it is not repeated\n"
        "    2026-06-01T12:00+00:00 failed after 7 s: one …"
    )
