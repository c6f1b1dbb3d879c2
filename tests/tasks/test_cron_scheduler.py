"""Schedules run once at each of their times, whatever happens to the servers; and which moments an expression
means in a time zone.
"""

import multiprocessing
import os
from collections import Counter
from dataclasses import replace
from datetime import UTC
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from zoneinfo import ZoneInfo

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.runtime.tasks.runner import RUNS
from mcp_toolserver.stores.board import KEPT_RUNS, RUN_OUTPUT, Claim, Outcome
from mcp_toolserver.stores.cron import MAX_SCHEDULES, StoredSchedule, StoredSchedules
from mcp_toolserver.text.cron import MAX_CHARACTERS, MAX_COUNTED, next_moment, parse_cron, past_moments
from tests.support.extent import rounds
from tests.tasks.schedules import (
    SetClock,
    look,
    looking,
    runner_of,
    schedule,
    scheduler,
    seconds,
    store,
    succeed,
)

SECONDS = 30.0
"""How long a test waits for another process."""

SPAWN = multiprocessing.get_context("spawn")

NOON = seconds("2026-06-01T12:00+02:00")
HOUR = 3_600

_Done = tuple[str, int]
"""A schedule and the time at which it ran."""


async def only(stored: StoredSchedules) -> StoredSchedule:
    (found,) = await stored.all()
    return found


@pytest.fixture
async def stored(tmp_path: Path) -> StoredSchedules:
    """A server's view of a schedule that runs each hour from noon on."""
    made = store(tmp_path)
    await made.create(schedule(first=NOON))
    return made


# --- exactly once ----------------------------------------------------------------------------------------

CHANGES = ("2026-03-29T00:00+01:00", "2026-10-25T00:00+02:00")
"""The days on which Berlin's clocks change, of 23 and of 25 hours."""

EVERY_HOUR = tuple(f"{minute} * * * *" for minute in range(0, 60, rounds(60, 5)))
"""A thousand times in all in the long step."""


DAILY: dict[str, tuple[str, ...]] = {
    "cron_30 2 * * *": (
        "2026-03-29T03:00+02:00",  # 02:30 does not exist
        "2026-03-30T02:30+02:00",
        "2026-10-25T02:30+02:00",  # the first of two
        "2026-10-26T02:30+01:00",
    ),
    "cron_0 3 * * *": (
        *("2026-03-29T03:00+02:00", "2026-03-30T03:00+02:00"),
        *("2026-10-25T03:00+01:00", "2026-10-26T03:00+01:00"),
    ),
    "cron_*/20 2 * * *": tuple(
        f"{day[:13]}:{minute}{day[13:]}"
        for day in (
            "2026-03-30T02+02:00",
            "2026-10-25T02+02:00",
            "2026-10-25T02+01:00",
            "2026-10-26T02+01:00",
        )
        for minute in ("00", "20", "40")
    ),
}
"""By job, its times on the days that follow each change."""


def expected() -> set[_Done]:
    """From each change, the times of a day by elapsed time, and those of the daily jobs by hand."""
    hourly = {
        (f"cron_{fields}", int(start) + 60 * int(fields.split()[0]) + hour * HOUR)
        for fields in EVERY_HOUR
        for start in map(seconds, CHANGES)
        for hour in range(41)
    }
    return hourly | {(job, int(seconds(moment))) for job, moments in DAILY.items() for moment in moments}


def serve(folder: Path, moments: list[int], together: Barrier, done: "Queue[list[_Done]]") -> None:
    """A server that looks at each of `moments`, at the same time as the other."""
    stored, clock, ran = store(folder), SetClock(), list[_Done]()

    async def run(one: Claim) -> Outcome:
        ran.append((one.schedule, int(clock.moment)))
        return Outcome(status="completed")

    async def all_moments() -> None:
        server = scheduler(stored, clock, run)
        for clock.moment in moments:
            await anyio.to_thread.run_sync(together.wait)
            await look(server)

    anyio.run(all_moments)
    done.put(ran)


@pytest.mark.rounds
async def test_two_servers_run_each_time_once_across_both_clock_changes(tmp_path: Path) -> None:
    wanted = expected()
    assert len(wanted) >= rounds(100, 1_000)
    stored = store(tmp_path)
    for name in sorted({name for name, _ in wanted}):
        first = min(moment for one, moment in wanted if one == name)
        await stored.create(schedule(name, fields=name.removeprefix("cron_"), first=first))
    # Between the two changes no server runs: what is due then is missed.
    moments = sorted({moment for _, moment in wanted})
    together, done = SPAWN.Barrier(2, timeout=SECONDS), SPAWN.Queue()
    servers = [SPAWN.Process(target=serve, args=(tmp_path, moments, together, done)) for _ in range(2)]
    for server in servers:
        server.start()
    ran = [*done.get(timeout=4 * SECONDS), *done.get(timeout=4 * SECONDS)]
    for server in servers:
        server.join(SECONDS)
        assert server.exitcode == 0
    assert Counter(ran) == Counter(wanted)
    after = {one.handle: one for one in await stored.all()}
    assert {name: one.run_count for name, one in after.items()} == Counter(name for name, _ in wanted)
    assert {run.outcome for one in after.values() for run in one.runs} == {"succeeded"}


# --- servers that end ------------------------------------------------------------------------------------


async def test_a_run_whose_server_was_killed_is_interrupted_and_not_repeated(tmp_path: Path) -> None:
    stored, killed, jobs = store(tmp_path), store(tmp_path), Held()
    await stored.create(schedule(first=NOON, catch_up=True))
    server = scheduler(killed, SetClock(NOON), jobs.run)
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as runner_of(server).group:
            await server.look()
            while not jobs.begun:
                await anyio.sleep(0.001)
            # As the kernel does when a process is killed.
            os.close(killed.board._database.server._file)
            runner_of(server).group.cancel_scope.cancel()
    (run,) = (await only(stored)).runs
    assert (run.due, run.ended, run.outcome, run.output) == (int(NOON), None, "interrupted", "")
    clock = SetClock(NOON + 30)
    await look(scheduler(stored, clock, succeed))
    assert [one.outcome for one in (await only(stored)).runs] == ["interrupted"]
    clock.moment = NOON + HOUR
    await look(scheduler(stored, clock, succeed))
    assert [one.outcome for one in (await only(stored)).runs] == ["succeeded", "interrupted"]
    # Only the lock of the living server is left.
    assert len(list(tmp_path.rglob("*.server-*"))) == 1


async def test_a_run_that_had_not_begun_when_its_server_ended_is_done_by_the_next_or_missed(
    tmp_path: Path,
) -> None:
    for late, due in ((59, [NOON]), (60, [])):
        stored = store(tmp_path / str(late))
        await stored.create(schedule(first=NOON))
        ended = store(tmp_path / str(late))
        server = scheduler(ended, SetClock(NOON), succeed)
        runner_of(server).free = 0
        await look(server)
        assert [run.outcome for run in (await only(stored)).runs] == ["waiting"]
        ended.board._database.close()
        await look(scheduler(stored, SetClock(NOON + late), succeed))
        after = await only(stored)
        assert [(run.due, run.outcome) for run in after.runs] == [(one, "succeeded") for one in due]
        assert (after.run_count, after.missed) == (len(due), 1 - len(due))


# --- the loop --------------------------------------------------------------------------------------------


async def test_a_server_looks_at_each_whole_minute_and_while_something_runs_each_second(
    stored: StoredSchedules,
) -> None:
    clock, jobs = SetClock(NOON - 20), Held()
    server = scheduler(stored, clock, jobs.run)
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as serving:
            runner_of(server).group = serving
            serving.start_soon(server.serve)
            await clock.asleep.wait()
            assert clock.slept == [20.0]
            clock.moment = NOON
            clock.wake()
            await clock.asleep.wait()
            while clock.slept[-1] != 1.0:
                clock.wake()
                await clock.asleep.wait()
            assert jobs.begun == ["cron_a"]
            serving.cancel_scope.cancel()


async def test_without_schedules_no_file_is_created_or_changed(tmp_path: Path) -> None:
    fresh = store(tmp_path)
    await look(scheduler(fresh, SetClock(NOON), succeed))
    assert (await fresh.all(), list(tmp_path.iterdir())) == ((), [])


async def test_state_that_cannot_be_read_is_logged_and_looked_at_again(
    stored: StoredSchedules, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken, clock = store(tmp_path), SetClock(NOON)
    broken.board._database.close()
    server = scheduler(broken, clock, succeed)
    runner_of(server).look = lambda: None
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as serving:
            serving.start_soon(server.serve)
            await clock.asleep.wait()
            serving.cancel_scope.cancel()
    assert "schedules could not be looked at" in caplog.text
    assert (await only(stored)).run_count == 0


# --- missed times ----------------------------------------------------------------------------------------


LATE: dict[str, tuple[int, bool, tuple[int, int, int | None]]] = {
    "a minute late": (3 * HOUR + 60, False, (0, 4, 3 * HOUR)),
    "less than a minute late": (3 * HOUR + 59, False, (1, 3, 2 * HOUR)),
    "made up for": (3 * HOUR + 1_800, True, (1, 3, 2 * HOUR)),
    "the only one, made up for": (1_800, True, (1, 0, None)),
}
"""Seconds after the first time at which a server comes, and whether missed times are made up for; then the
runs, the missed times, and the last of these."""


async def test_times_without_a_server_are_missed_and_only_the_latest_can_be_made_up_for(
    tmp_path: Path,
) -> None:
    for name, (late, catch_up, (runs, missed, last)) in LATE.items():
        stored = store(tmp_path / name)
        await stored.create(schedule(first=NOON, catch_up=catch_up))
        for _ in range(3):
            await look(scheduler(stored, SetClock(NOON + late), succeed))
        after = await only(stored)
        assert (after.run_count, after.missed) == (runs, missed), name
        assert after.last_missed == (None if last is None else NOON + last)
        due = NOON + late // HOUR * HOUR
        assert after.next == due + HOUR
        assert [run.due for run in after.runs] == [due] * runs


async def test_a_clock_that_is_set_back_repeats_nothing(stored: StoredSchedules) -> None:
    clock = SetClock(NOON)
    server = scheduler(stored, clock, succeed)
    await look(server)
    for clock.moment in (NOON - HOUR, NOON, NOON + HOUR):
        await look(server)
    assert [one.due for one in (await only(stored)).runs] == [NOON + HOUR, NOON]


# --- limits ----------------------------------------------------------------------------------------------


class Held:
    """Jobs that run until they are released."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.end = anyio.Event()

    async def run(self, one: Claim) -> Outcome:
        self.begun.append(one.schedule)
        await self.end.wait()
        return Outcome(status="completed")


async def test_a_time_within_the_previous_run_is_missed(stored: StoredSchedules, tmp_path: Path) -> None:
    clock, jobs = SetClock(NOON), Held()
    server = scheduler(stored, clock, jobs.run)
    other = scheduler(store(tmp_path), clock, jobs.run)
    with anyio.fail_after(SECONDS):
        async with looking(server):
            clock.moment = NOON + HOUR
            await server.look()
            async with looking(other):
                pass
            jobs.end.set()
    clock.moment = NOON + 2 * HOUR
    await look(server)
    after = await only(stored)
    assert jobs.begun == ["cron_a", "cron_a"]
    assert (after.missed, after.last_missed) == (1, NOON + HOUR)


async def test_a_server_without_a_free_place_leaves_a_run_to_others_and_at_last_queues_it(
    stored: StoredSchedules,
) -> None:
    clock, jobs = SetClock(NOON), Held()
    for number in range(RUNS - 1):
        await stored.create(schedule(f"cron_{number}", first=NOON))
    server = scheduler(stored, clock, jobs.run)
    with anyio.fail_after(SECONDS):
        async with looking(server):
            while len(jobs.begun) < RUNS:
                await anyio.sleep(0.001)
            await stored.create(schedule("cron_more", first=NOON))
            await server.look()
            assert (await stored.all())[-1].runs == ()
            clock.moment = NOON + 30
            await server.look()
            while "cron_more" not in jobs.begun:
                await anyio.sleep(0.001)
            jobs.end.set()
    assert {one.missed for one in await stored.all()} == {0}


async def test_a_schedule_that_does_not_recur_ends_with_its_first_run(tmp_path: Path) -> None:
    stored = store(tmp_path)
    await stored.create(replace(schedule(first=NOON), once=True))
    # A time that is missed does not end it.
    for moment in (NOON + 120, NOON + HOUR, NOON + 2 * HOUR):
        await look(scheduler(stored, SetClock(moment), succeed))
    after = await only(stored)
    assert ([run.due for run in after.runs], after.missed, after.next) == ([NOON + HOUR], 1, None)


async def test_an_owner_has_a_limited_number_of_schedules(tmp_path: Path) -> None:
    stored = store(tmp_path)
    for number in range(MAX_SCHEDULES):
        await stored.create(schedule(f"cron_{number}", first=NOON))
    with pytest.raises(InvalidInput, match="CronDelete"):
        await stored.create(schedule("cron_more", first=NOON))
    await stored.create(schedule("cron_other", first=NOON, owner="other"))


async def test_the_last_runs_are_kept_with_the_end_of_their_output(stored: StoredSchedules) -> None:
    clock = SetClock()

    async def run(_: Claim) -> Outcome:
        return Outcome(status="failed", reason="Exit status 3.", output=b"a" * 50_000 + "ü".encode() * 50_000)

    server = scheduler(stored, clock, run)
    for number in range(KEPT_RUNS + 2):
        clock.moment = NOON + number * HOUR
        await look(server)
    after = await only(stored)
    assert (
        after.runs[0].output
        == f"[142000 bytes before are not kept]\n{'ü' * (RUN_OUTPUT // 2)}\nExit status 3."
    )
    assert after.run_count == KEPT_RUNS + 2
    assert [run.due for run in after.runs] == [NOON + n * HOUR for n in range(KEPT_RUNS + 1, 1, -1)]


async def test_a_schedule_in_an_unknown_zone_does_not_stop_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored = store(tmp_path)
    await stored.create(schedule("cron_a", zone="Atlantis/Port", first=NOON - 60))
    await stored.create(schedule("cron_b", first=NOON))
    await look(scheduler(stored, SetClock(NOON), succeed))
    assert [one.run_count for one in await stored.all()] == [0, 1]
    assert "cron_a does not run: There is no time zone" in caplog.text


BERLIN = ZoneInfo("Europe/Berlin")


FIELDS = {
    "30 2 * * *": "30 2 * * *",
    "  0  9-17/2 * jan-mar mon,FRI ": "0 9-17/2 * JAN-MAR MON,FRI",
    "@daily": "0 0 * * *",
    " @Hourly ": "0 * * * *",
    "@weekly": "0 0 * * SUN",
    "@yearly": "0 0 1 1 *",
    "0 0 29 2 *": "0 0 29 2 *",
    "0 0 L * *": "0 0 L * *",
    "0 0 * * 7": "0 0 * * 7",
}
REFUSED = {
    "": "five fields",
    "* * * *": "not 4",
    "0 * * * * *": "not 6",
    "60 * * * *": "bad minute",
    "0 0 * * XYZ": "bad day-of-week",
    "@reboot": "choose from @hourly",
    "0 0 30 2 *": "bad day-of-month",
    "0 0 */30 2 MON#5": "never occurs",
    "0 0 ² * *": "numbers, names",
    "0\x00 0 * * *": "numbers, names",
    "1," * MAX_CHARACTERS + "1 * * * *": "at most",
}
"""By expression, the reason."""


def test_expressions_become_five_fields_or_are_refused_with_a_reason() -> None:
    assert {text: parse_cron(text) for text in FIELDS} == FIELDS
    for text, says in REFUSED.items():
        with pytest.raises(ValueError, match=says):
            parse_cron(text)


@given(st.text(alphabet="0123456789*/,-#LWMONJAN@ ", max_size=40) | st.text(max_size=40))
@example("0 0 1#1 * *")
@example("* * * * 1#1/2")
def test_any_text_is_an_expression_that_occurs_or_is_refused(text: str) -> None:
    try:
        fields = parse_cron(text)
    except ValueError:
        return
    assert parse_cron(fields) == fields
    assert next_moment(fields, UTC, 0) is not None


ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"])
EXPRESSIONS = st.sampled_from(
    ["* * * * *", "*/7 * * * *", "0 * * * *", "30 2 * * *", "5,35 1-3 * * *", "*/30 2 * * *", "0 0 1 * MON"]
)
NEAR_CHANGES = st.sampled_from(
    ["2026-03-29T00:00Z", "2026-10-25T00:00Z", "2026-03-08T06:00Z", "2026-10-03T15:00Z"]
)


@given(ZONES, EXPRESSIONS, NEAR_CHANGES, st.integers(-7_200, 7_200), st.integers(0, 14_400))
def test_the_moments_do_not_depend_on_where_the_search_begins(
    zone: str, fields: str, change: str, before: int, later: int
) -> None:
    where = ZoneInfo(zone)
    start = seconds(change.replace("Z", "+00:00")) + before
    middle = start + later
    found: list[int] = []
    moment: float = start
    while moment <= middle:
        following = next_moment(fields, where, moment) or 0
        assert following > moment
        assert following % 60 == 0
        found.append(moment := following)
    assert found[-1] == next_moment(fields, where, middle)


def test_past_moments_are_counted_up_to_a_limit_and_the_latest_is_exact() -> None:
    since = int(seconds("2026-01-01T00:00+01:00"))
    past = past_moments("* * * JAN *", BERLIN, since, seconds("2026-12-01T00:00+01:00"))
    assert past == (MAX_COUNTED, seconds("2026-01-31T23:59+01:00"))
    since = int(seconds("2026-03-28T02:30+01:00"))
    past = past_moments("30 2 * * *", BERLIN, since, seconds("2026-03-31T02:29+02:00"))
    assert past == (3, seconds("2026-03-30T02:30+02:00"))
