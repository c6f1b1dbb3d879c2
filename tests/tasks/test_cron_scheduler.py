"""Schedules run once at each of their times, whatever happens to the servers."""

import multiprocessing
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import anyio
import pytest

from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.errors import Conflict, InvalidInput, Unavailable
from mcp_toolserver.pipeline.call import Rights
from mcp_toolserver.stores.cron import (
    KEPT_RUNS,
    MAX_OUTPUT_BYTES,
    MAX_SCHEDULES,
    ClaimedRun,
    Outcome,
    StoredRun,
    StoredSchedule,
    StoredSchedules,
)
from mcp_toolserver.stores.database import Database
from tests.support.extent import rounds
from tests.tasks.schedules import SetClock, look, schedule, scheduler, seconds, store, succeed

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

EVERY_HOUR = tuple(f"{minute} * * * *" for minute in range(0, 60, rounds(30, 5)))
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

    async def run(one: StoredSchedule) -> Outcome:
        ran.append((one.handle, int(clock.moment)))
        return Outcome(succeeded=True, output="")

    async def all_moments() -> None:
        server = scheduler(stored, clock, run, running=100)
        for clock.moment in moments:
            await anyio.to_thread.run_sync(together.wait)
            await look(server)
        stored.close()

    anyio.run(all_moments)
    done.put(ran)


@pytest.mark.rounds
async def test_two_servers_run_each_time_once_across_both_clock_changes(tmp_path: Path) -> None:
    wanted = expected()
    assert len(wanted) >= rounds(180, 1_000)
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


def die(folder: Path) -> None:
    """A server that is killed in the middle of a run."""

    async def run(_: StoredSchedule) -> Outcome:
        os._exit(9)

    anyio.run(look, scheduler(store(folder), SetClock(NOON), run))


async def test_a_run_whose_server_was_killed_is_interrupted_and_not_repeated(tmp_path: Path) -> None:
    stored = store(tmp_path)
    await stored.create(schedule(first=NOON, catch_up=True))
    killed = SPAWN.Process(target=die, args=(tmp_path,))
    killed.start()
    killed.join(SECONDS)
    assert killed.exitcode == 9
    (run,) = (await only(stored)).runs
    assert run == StoredRun(due=int(NOON), started=int(NOON), ended=None, outcome="interrupted", output="")
    clock = SetClock(NOON + 30)
    await look(scheduler(stored, clock, succeed))
    assert [one.outcome for one in (await only(stored)).runs] == ["interrupted"]
    clock.moment = NOON + HOUR
    await look(scheduler(stored, clock, succeed))
    assert [one.outcome for one in (await only(stored)).runs] == ["succeeded", "interrupted"]
    # Only the lock of the living server is left.
    assert len(list(tmp_path.rglob("*.cron-*"))) == 1


async def test_the_runs_of_a_server_that_stops_are_interrupted(
    stored: StoredSchedules, tmp_path: Path
) -> None:
    clock, began = SetClock(NOON), anyio.Event()

    async def run(_: StoredSchedule) -> Outcome:
        began.set()
        await anyio.sleep_forever()
        raise AssertionError

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as serving:
            serving.start_soon(scheduler(stored, clock, run).serve)
            await began.wait()
            assert (await only(store(tmp_path))).runs[0].outcome == "running"
            serving.cancel_scope.cancel()
    assert (await only(store(tmp_path))).runs[0].outcome == "interrupted"
    assert not list(tmp_path.rglob("*.cron-*"))


# --- the loop --------------------------------------------------------------------------------------------


async def test_a_server_looks_at_each_whole_minute_and_while_something_runs_each_second(
    stored: StoredSchedules,
) -> None:
    clock, jobs = SetClock(NOON - 20), Held()
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as serving:
            serving.start_soon(scheduler(stored, clock, jobs.run).serve)
            await clock.asleep.wait()
            assert clock.slept == [20.0]
            clock.moment = NOON
            clock.wake()
            await clock.asleep.wait()
            assert (clock.slept, jobs.begun) == ([20.0, 1.0], ["cron_a"])
            serving.cancel_scope.cancel()


async def test_without_schedules_no_file_is_created_or_changed(tmp_path: Path) -> None:
    fresh = store(tmp_path)
    await look(scheduler(fresh, SetClock(NOON), succeed))
    assert (await fresh.all(), list(tmp_path.iterdir())) == ((), [])
    database = Database(str(tmp_path), ["root"])
    await database.run(lambda opened: opened.execute("CREATE TABLE other (x)") and None)
    before = Path(database.path).read_bytes()
    stored = StoredSchedules(database)
    await look(scheduler(stored, SetClock(NOON), succeed))
    assert await stored.all() == ()
    assert Path(database.path).read_bytes() == before


async def test_state_that_cannot_be_read_is_logged_and_looked_at_again(
    stored: StoredSchedules, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = Database(str(tmp_path), ["root"])
    broken = StoredSchedules(database)
    database.close()
    await look(scheduler(broken, SetClock(NOON), succeed))
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
        assert [(run.due, run.started) for run in after.runs] == [(due, NOON + late)] * runs


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
        self.stopped: list[str] = []
        self.end = anyio.Event()

    async def run(self, one: StoredSchedule) -> Outcome:
        self.begun.append(one.handle)
        try:
            await self.end.wait()
        except BaseException:
            self.stopped.append(one.handle)
            raise
        return Outcome(succeeded=True, output="")


async def test_a_time_within_the_previous_run_is_missed(stored: StoredSchedules, tmp_path: Path) -> None:
    clock, jobs = SetClock(NOON), Held()
    server = scheduler(stored, clock, jobs.run)
    other = scheduler(store(tmp_path), clock, jobs.run)
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as runs:
            await server.look(runs)
            clock.moment = NOON + HOUR
            await server.look(runs)
            await other.look(runs)
            jobs.end.set()
    clock.moment = NOON + 2 * HOUR
    await look(server)
    after = await only(stored)
    assert jobs.begun == ["cron_a", "cron_a"]
    assert (after.missed, after.last_missed) == (1, NOON + HOUR)


async def test_runs_wait_for_a_free_place_and_are_then_started_or_missed(stored: StoredSchedules) -> None:
    clock, jobs = SetClock(NOON), Held()
    for name in ("cron_b", "cron_c"):
        await stored.create(schedule(name, first=NOON))
    server = scheduler(stored, clock, jobs.run, running=1)
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as runs:
            await server.look(runs)
            await server.look(runs)
            jobs.end.set()
    assert jobs.begun == ["cron_a"]
    clock.moment = NOON + 30
    await look(server)
    assert jobs.begun == ["cron_a", "cron_b"]
    clock.moment = NOON + 90
    await look(server)
    missed = {one.handle: one.missed for one in await stored.all()}
    assert missed == {"cron_a": 0, "cron_b": 0, "cron_c": 1}


async def test_an_owner_has_a_limited_number_of_schedules(tmp_path: Path) -> None:
    stored = store(tmp_path)
    for number in range(MAX_SCHEDULES):
        await stored.create(schedule(f"cron_{number}", first=NOON))
    with pytest.raises(InvalidInput, match="CronDelete"):
        await stored.create(schedule("cron_more", first=NOON))
    await stored.create(schedule("cron_other", first=NOON, owner="other"))


async def test_the_last_runs_are_kept_without_the_middle_of_long_output(stored: StoredSchedules) -> None:
    clock = SetClock()

    async def run(_: StoredSchedule) -> Outcome:
        return Outcome(succeeded=True, output="a" * 50_000 + "ü" * 50_000)

    server = scheduler(stored, clock, run)
    for number in range(KEPT_RUNS + 2):
        clock.moment = NOON + number * HOUR
        await look(server)
    after = await only(stored)
    output = after.runs[0].output
    assert len(output.encode()) < MAX_OUTPUT_BYTES + 100
    assert (output[:3], output[-3:]) == ("aaa", "üüü")
    assert "[142000 bytes are left out]" in output
    assert after.run_count == KEPT_RUNS + 2
    assert [run.due for run in after.runs] == [NOON + n * HOUR for n in range(KEPT_RUNS + 1, 1, -1)]


# --- outcomes --------------------------------------------------------------------------------------------


async def test_a_job_that_fails_has_its_reason_or_a_line_in_the_log_and_the_next_one_runs(
    stored: StoredSchedules, caplog: pytest.LogCaptureFixture
) -> None:
    clock, steps = SetClock(NOON), [ValueError("oops"), Unavailable("There is no model."), None]

    async def run(_: StoredSchedule) -> Outcome:
        if (error := steps.pop(0)) is not None:
            raise error
        return Outcome(succeeded=True, output="done")

    server = scheduler(stored, clock, run)
    while steps:
        await look(server)
        clock.moment = (await only(stored)).next or 0
    assert [(one.outcome, one.output) for one in (await only(stored)).runs] == [
        ("succeeded", "done"),
        ("failed", "There is no model."),
        ("failed", "It failed inside the server; the server's log says why."),
    ]
    assert "oops" in caplog.text
    assert "There is no model" not in caplog.text


class Busy(StoredSchedules):
    """A store that another server uses at first."""

    conflicts: int

    async def finish(self, run: ClaimedRun, outcome: Outcome, now: float) -> None:
        if self.conflicts:
            self.conflicts -= 1
            raise Conflict("Another server is changing the state.")
        await super().finish(run, outcome, now)


class Awake(SetClock):
    """Does not sleep."""

    async def sleep(self, seconds: float) -> None:
        await anyio.lowlevel.checkpoint()


async def test_an_outcome_is_stored_when_it_can_be_and_else_does_not_end_the_server(tmp_path: Path) -> None:
    for conflicts, outcome in ((2, "succeeded"), (1_000, "interrupted")):
        stored = Busy(Database(str(tmp_path / outcome), ["root"]))
        stored.conflicts = conflicts
        await stored.create(schedule(first=NOON))
        await look(scheduler(stored, Awake(NOON), succeed))
        stored.close()
        assert (await only(store(tmp_path / outcome))).runs[0].outcome == outcome


async def test_a_schedule_in_an_unknown_zone_does_not_stop_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored = store(tmp_path)
    await stored.create(schedule("cron_a", zone="Atlantis/Port", first=NOON - 60))
    await stored.create(schedule("cron_b", first=NOON))
    await look(scheduler(stored, SetClock(NOON), succeed))
    assert [one.run_count for one in await stored.all()] == [0, 1]
    assert "cron_a does not run: There is no time zone" in caplog.text


# --- stopping --------------------------------------------------------------------------------------------


async def test_deleting_a_schedule_stops_its_run_in_whatever_server(
    stored: StoredSchedules, tmp_path: Path
) -> None:
    jobs = Held()
    await stored.create(schedule("cron_b", first=NOON))
    server = scheduler(stored, SetClock(NOON), jobs.run)
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as runs:
            await server.look(runs)
            deleted = await store(tmp_path).delete("cron_a", LOCAL, Rights())
            assert deleted.runs[0].outcome == "running"
            await server.look(runs)
            jobs.end.set()
    assert jobs.stopped == ["cron_a"]
    assert [(one.handle, one.runs[0].outcome) for one in await stored.all()] == [("cron_b", "succeeded")]


async def test_a_run_stops_over_its_time_or_when_the_rights_of_its_owner_change(
    stored: StoredSchedules, tmp_path: Path
) -> None:
    jobs = Held()
    await look(scheduler(stored, SetClock(NOON), jobs.run, seconds=0.01))
    (run,) = (await only(stored)).runs
    assert (run.outcome, run.output) == ("failed", "It was stopped after 0.01 s.")
    assert jobs.stopped == ["cron_a"]
    stored = store(tmp_path / "changed")
    await stored.create(schedule(first=NOON, owner="anna"))
    rights: Iterator[Mapping[str, object]] = iter(({"anna": "all"}, {"anna": "few"}, {"anna": "few"}))
    server = scheduler(stored, SetClock(NOON), jobs.run, lambda: next(rights))
    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as runs:
            await server.look(runs)
            await server.look(runs)
    (run,) = (await only(stored)).runs
    assert (run.outcome, run.output) == ("failed", "It was stopped, because the rights of its owner changed.")
