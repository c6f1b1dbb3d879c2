"""The schedules of one caller, whose jobs run with at most the rights under which they were created."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from anyio import to_thread

from mcp_toolserver.capabilities.cron import JobKind, NewSchedule, Schedule, ScheduledRun, owner_of
from mcp_toolserver.errors import InvalidInput, Unavailable
from mcp_toolserver.pipeline import stored_rights
from mcp_toolserver.pipeline.nested_calls import NestedCalls, calls_without_client
from mcp_toolserver.runtime.clock import find_zone, machine_zone
from mcp_toolserver.runtime.tasks.runner import TOOLS, TaskRunner
from mcp_toolserver.stores.cron import PREFIX, Claim, StoredSchedule, StoredSchedules
from mcp_toolserver.text.cron import next_moment, past_moments

GRACE_SECONDS = 60
"""How late a run may be added."""

_INSTEAD: Mapping[JobKind, str] = {
    "command": "The operator can change the toolsets or the sandbox of this server.",
    "prompt": "Give a command, or ask the operator to configure a model in [agent] of the config file.",
}


@dataclass(frozen=True, kw_only=True)
class OwnerSchedules:
    """The schedules of the caller; they outlive the server. `now` is the time of the call."""

    runner: TaskRunner
    store: StoredSchedules
    calls: NestedCalls
    """What the caller may do, and at most what the jobs of its schedules may do."""

    @property
    def owner(self) -> str:
        """Whose schedules these are."""
        return owner_of(self.calls.dispatcher.user)

    async def create(self, wanted: NewSchedule, now: datetime) -> Schedule:
        """Store a schedule, whose job gets at most the rights of this call.

        Raises:
            InvalidInput: no such time zone, or the caller has too many schedules.
            Unavailable: there is no tool for the job here, or the state cannot be written.
            Conflict: another server has been changing this state for seconds.
        """
        zone = wanted.zone or await to_thread.run_sync(machine_zone)
        found = await to_thread.run_sync(find_zone, zone)
        # No client is there when it runs.
        alone = calls_without_client(self.calls.dispatcher, self.calls.rights, owner="", name="")
        kind = wanted.job.kind
        if why := alone.lacks(TOOLS[kind]):
            raise Unavailable(f"A {kind} runs with the tool {TOOLS[kind]}: {why}. {_INSTEAD[kind]}")
        made = StoredSchedule(
            handle=PREFIX + secrets.token_hex(16),
            owner=self.owner,
            fields=wanted.fields,
            zone=zone,
            job=wanted.job,
            description=wanted.description,
            catch_up=wanted.catch_up,
            once=wanted.once,
            rights=stored_rights.to_json(self.calls.rights),
            created=int(now.timestamp()),
            next=await to_thread.run_sync(next_moment, wanted.fields, found, now.timestamp()),
        )
        await self.store.create(made)
        return shown(made, now.timestamp())

    async def all(self, now: datetime) -> tuple[Schedule, ...]:
        """Return all of the caller, the oldest first. Raises: Conflict, Unavailable: as for `create`."""
        found = [
            (one, await self._obstacle(one, now.timestamp())) for one in await self.store.all(self.owner)
        ]
        return await to_thread.run_sync(lambda: tuple(shown(one, now.timestamp(), why) for one, why in found))

    async def _obstacle(self, schedule: StoredSchedule, now: float) -> str:
        """Why this server does not run a schedule whose time has come."""
        if schedule.next is None or schedule.next > now:
            return ""
        return await self.runner.obstacle(schedule.rights, TOOLS[schedule.job.kind])

    async def delete(self, handle: str, now: datetime) -> Schedule:
        """Delete a schedule and stop its run; returns what it was.

        Raises:
            NotFound: the caller has no such schedule.
            Conflict, Unavailable: as for `create`.
        """
        return shown(await self.store.delete(handle, self.owner, self.calls.rights), now.timestamp())


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


def shown(stored: StoredSchedule, now: float, waits: str = "") -> Schedule:
    """A schedule with the times that it has missed until now, also those that no server has seen. `waits` is
    why this server does not run it.

    If the machine does not know its time zone any more, it does not run, and its times are in UTC.
    """
    try:
        zone = find_zone(stored.zone)
    except (InvalidInput, Unavailable):
        zone = None
    if zone is not None and stored.next is not None and stored.next <= now:
        claim = plan(stored, now)
        stored = replace(
            stored,
            next=claim.next if claim.due is None else claim.due,
            missed=stored.missed + claim.missed,
            last_missed=claim.last_missed or stored.last_missed,
        )

    def local(moment: float) -> datetime:
        return datetime.fromtimestamp(int(moment), zone or UTC)

    def local_or_none(moment: float | None) -> datetime | None:
        return None if moment is None else local(moment)

    return Schedule(
        handle=stored.handle,
        fields=stored.fields,
        zone=stored.zone,
        job=stored.job,
        description=stored.description,
        catch_up=stored.catch_up,
        once=stored.once,
        created=local(stored.created),
        next=local_or_none(stored.next),
        missed=stored.missed,
        last_missed=local_or_none(stored.last_missed),
        waits=waits,
        run_count=stored.run_count,
        runs=tuple(
            ScheduledRun(
                due=local(run.due),
                started=local_or_none(run.began),
                ended=local_or_none(run.ended),
                outcome=run.outcome,
                output=run.output,
            )
            for run in stored.runs
        ),
    )
