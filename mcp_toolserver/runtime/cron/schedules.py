"""The schedules of one caller."""

import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo

from anyio import to_thread

from mcp_toolserver.capabilities.cron import NewSchedule, Schedule, ScheduledRun, owner_of
from mcp_toolserver.errors import InvalidInput, Unavailable
from mcp_toolserver.pipeline import stored_rights
from mcp_toolserver.pipeline.nested_calls import NestedCalls, calls_without_client
from mcp_toolserver.runtime.clock import find_zone, machine_zone
from mcp_toolserver.runtime.cron.jobs import check_available
from mcp_toolserver.runtime.cron.scheduler import plan
from mcp_toolserver.stores.cron import PREFIX, StoredSchedule, StoredSchedules
from mcp_toolserver.text.cron import next_moment


@dataclass(frozen=True, kw_only=True)
class OwnerSchedules:
    """The schedules of the caller; they outlive the server. `now` is the time of the call."""

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
        check_available(
            calls_without_client(self.calls.dispatcher, self.calls.rights, owner="", name=""),
            wanted.job.kind,
        )
        made = StoredSchedule(
            handle=PREFIX + secrets.token_hex(16),
            owner=self.owner,
            fields=wanted.fields,
            zone=zone,
            job=wanted.job,
            description=wanted.description,
            catch_up=wanted.catch_up,
            rights=stored_rights.to_json(self.calls.rights),
            created=int(now.timestamp()),
            next=await to_thread.run_sync(next_moment, wanted.fields, found, now.timestamp()),
        )
        await self.store.create(made)
        return shown(made, now.timestamp())

    async def all(self, now: datetime) -> tuple[Schedule, ...]:
        """Return all of the caller, the oldest first. Raises: Conflict, Unavailable: as for `create`."""
        found = await self.store.all(self.owner)
        return await to_thread.run_sync(lambda: tuple(shown(one, now.timestamp()) for one in found))

    async def delete(self, handle: str, now: datetime) -> Schedule:
        """Delete a schedule and stop its run; returns what it was.

        Raises:
            NotFound: the caller has no such schedule.
            Conflict, Unavailable: as for `create`.
        """
        return shown(await self.store.delete(handle, self.owner, self.calls.rights), now.timestamp())


def shown(stored: StoredSchedule, now: float) -> Schedule:
    """A schedule with the times that it has missed until now, also those that no server has seen.

    If the machine does not know its time zone any more, it does not run, and its times are in UTC.
    """
    zone = _zone_or_none(stored.zone)
    if zone is not None and stored.next is not None and stored.next <= now:
        claim = plan(stored, now)
        stored = replace(
            stored,
            next=claim.next if claim.due is None else claim.due,
            missed=stored.missed + claim.missed,
            last_missed=claim.last_missed or stored.last_missed,
        )

    def local(moment: int) -> datetime:
        return datetime.fromtimestamp(moment, zone or UTC)

    def local_or_none(moment: int | None) -> datetime | None:
        return None if moment is None else local(moment)

    return Schedule(
        handle=stored.handle,
        fields=stored.fields,
        zone=stored.zone,
        job=stored.job,
        description=stored.description,
        catch_up=stored.catch_up,
        created=local(stored.created),
        next=local_or_none(stored.next),
        missed=stored.missed,
        last_missed=local_or_none(stored.last_missed),
        run_count=stored.run_count,
        runs=tuple(
            ScheduledRun(
                due=local(run.due),
                started=local(run.started),
                ended=local_or_none(run.ended),
                outcome=run.outcome,
                output=run.output,
            )
            for run in stored.runs
        ),
    )


def _zone_or_none(name: str) -> tzinfo | None:
    try:
        return find_zone(name)
    except (InvalidInput, Unavailable):
        return None
