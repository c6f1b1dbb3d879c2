"""Runs schedules while a server runs, each due time at most once across all servers of a workspace.

A due time that no server claims within a minute is missed: no server ran, the previous run was still going,
or too many others were. Cron expressions mean whole minutes, so the scheduler looks once a minute, and once
a second while something runs, to stop the runs of deleted schedules.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

import anyio
from anyio.abc import TaskGroup

from mcp_toolserver.errors import InvalidInput, ToolError
from mcp_toolserver.runtime.clock import SystemClock, find_zone
from mcp_toolserver.stores.cron import Claim, ClaimedRun, Outcome, StoredSchedule, StoredSchedules
from mcp_toolserver.text.cron import next_moment, past_moments

log = logging.getLogger(__name__)

GRACE_SECONDS = 60
"""How late a run may start."""

_LOOK_SECONDS = 60.0
_WATCH_SECONDS = 1.0

_STORE_ATTEMPTS = 60
"""How often the outcome of a run is tried to be stored, once a second."""

_STOPPED = "It was stopped, because the rights of its owner changed."

Owners = Callable[[], Mapping[str, object]]
"""Returns whose schedules run here, each with what describes its rights; a run ends when that changes."""

Run = Callable[[StoredSchedule], Awaitable[Outcome]]
"""Does the job of a schedule. Raises: ToolError: it failed."""


def plan(schedule: StoredSchedule, now: float) -> Claim:
    """Say what to run of a schedule whose next time has come, which times are missed, and what comes next.

    Raises:
        InvalidInput, Unavailable: the time zone is no longer known.
    """
    assert schedule.next is not None
    zone = find_zone(schedule.zone)
    count, latest = past_moments(schedule.fields, zone, schedule.next, now)
    runs = schedule.catch_up or now - latest < GRACE_SECONDS
    missed = count - runs
    # Only the latest of them can run, so every other one is missed.
    earlier = past_moments(schedule.fields, zone, schedule.next, latest - 1)[1] if missed else None
    return Claim(
        schedule=schedule,
        due=latest if runs else None,
        next=next_moment(schedule.fields, zone, now),
        missed=missed,
        last_missed=earlier if runs else latest,
    )


@dataclass(frozen=True, kw_only=True)
class _Running:
    run: ClaimedRun
    rights: object
    scope: anyio.CancelScope


class Scheduler:
    """The schedules of `owners`; `run` runs `running` at once, each for `seconds`; what `is_held` waits."""

    def __init__(  # noqa: PLR0913  the parts of the server that it works with
        self,
        store: StoredSchedules,
        clock: SystemClock,
        run: Run,
        owners: Owners,
        *,
        running: int = 4,
        seconds: float = 3_600.0,
        is_held: Callable[[StoredSchedule], Awaitable[bool]] | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._run = run
        self._owners = owners
        self._most, self._seconds = running, seconds
        self._is_held = is_held
        self._waiting: set[str] = set()
        """Schedules whose time came while they were held."""
        self._running: dict[int, _Running] = {}

    async def serve(self) -> None:
        """Run what is due until cancelled. Runs that have not ended then count as interrupted."""
        try:
            async with anyio.create_task_group() as runs:
                while True:
                    await self.look(runs)
                    await self._clock.sleep(await self._pause())
        finally:
            self._store.close()

    async def look(self, runs: TaskGroup) -> None:
        """Stop what must not run any more, and start in `runs` what is due."""
        try:
            await self._stop_runs()
            await self._start_runs(runs)
        except ToolError as error:
            log.warning("schedules could not be looked at: %s", error)

    async def _pause(self) -> float:
        """Seconds until the next look."""
        minute = _LOOK_SECONDS - await self._now() % _LOOK_SECONDS
        return min(minute, _WATCH_SECONDS) if self._running else minute

    async def _stop_runs(self) -> None:
        """Stop the runs of deleted schedules, and of owners whose rights have changed."""
        if not self._running:
            return
        owners, existing = self._owners(), await self._store.existing(self._running)
        for number, running in tuple(self._running.items()):
            if number not in existing or owners.get(running.run.schedule.owner) != running.rights:
                running.scope.cancel()

    async def _start_runs(self, runs: TaskGroup) -> None:
        owners, now = self._owners(), await self._now()
        claims: list[Claim] = []
        free = self._most - len(self._running)
        for schedule in await self._store.due(now, owners):
            if self._is_held and await self._is_held(schedule):
                self._waiting.add(schedule.handle)
                continue
            schedule = replace(schedule, catch_up=schedule.catch_up or schedule.handle in self._waiting)
            claim = await anyio.to_thread.run_sync(_planned, schedule, now)
            if claim is None or (claim.due is not None and not free):
                continue
            claims.append(claim)
            free -= claim.due is not None
        for run in await self._store.claim(claims, now):
            running = _Running(run=run, rights=owners[run.schedule.owner], scope=anyio.CancelScope())
            self._running[run.id] = running
            self._waiting.discard(run.schedule.handle)
            runs.start_soon(self._do, running)

    async def _do(self, running: _Running) -> None:
        """Run a job and store its outcome."""
        outcome = Outcome(succeeded=False, output=_STOPPED)
        try:
            with running.scope:
                outcome = await self._outcome(running.run.schedule)
            await self._finish(running.run, outcome)
        finally:
            del self._running[running.run.id]

    async def _outcome(self, schedule: StoredSchedule) -> Outcome:
        try:
            with anyio.move_on_after(self._seconds):
                return await self._run(schedule)
        except ToolError as error:
            return Outcome(succeeded=False, output=str(error))
        except Exception:
            # One job must not end the scheduler.
            log.exception("the job of %s failed", schedule.handle)
            return Outcome(succeeded=False, output="It failed inside the server; the server's log says why.")
        return Outcome(succeeded=False, output=f"It was stopped after {self._seconds:g} s.")

    async def _finish(self, run: ClaimedRun, outcome: Outcome) -> None:
        for _ in range(_STORE_ATTEMPTS):
            try:
                return await self._store.finish(run, outcome, await self._now())
            except ToolError as error:
                log.warning("the outcome of %s could not be stored: %s", run.schedule.handle, error)
                await self._clock.sleep(_WATCH_SECONDS)
        return None

    async def _now(self) -> float:
        return (await self._clock.now()).timestamp()


def _planned(schedule: StoredSchedule, now: float) -> Claim | None:
    """The plan; None if the machine does not know the time zone any more."""
    try:
        return plan(schedule, now)
    except (InvalidInput, ValueError) as error:
        log.warning("%s does not run: %s", schedule.handle, error)
        return None
