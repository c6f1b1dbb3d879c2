"""Runs the schedules of a workspace while a server runs: those of its user, and of each name with a token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import anyio

from mcp_toolserver.app.compose import Application, application_of
from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.capabilities.cron import owner_of, runs_of
from mcp_toolserver.errors import Unavailable
from mcp_toolserver.pipeline.narrowings import PLAN_MODE
from mcp_toolserver.runtime.clock import SystemClock
from mcp_toolserver.runtime.cron.scheduler import Scheduler
from mcp_toolserver.runtime.cron.schedules import reaches, run_job
from mcp_toolserver.stores.cron import Outcome, StoredSchedule, StoredSchedules

if TYPE_CHECKING:
    from mcp_toolserver.protocol.http.tokens import Grant, GrantFile


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """The jobs of all owners that `app` may run."""

    app: Application
    grants: GrantFile | None
    announce: Callable[[str], None] = lambda _: None
    """Gets a line at the start and at the end of each run."""

    def owners(self) -> Mapping[str, Grant | None]:
        """Whose schedules run, with their grant; None is the user of this server."""
        owners: dict[str, Grant | None] = {LOCAL: None}
        if self.grants is not None:
            # A later end changes nothing for what runs.
            grants = self.grants.grants().values()
            owners.update((owner_of(grant.name), replace(grant, expires=None)) for grant in grants)
        return owners

    async def is_held(self, schedule: StoredSchedule) -> bool:
        """Whether it waits here: a session is in plan mode, or the client has none of its folders."""
        is_planning = self.app.shared.narrowings.holds(runs_of(schedule.owner), PLAN_MODE)
        return is_planning or not await reaches(self.app.dispatcher, schedule)

    async def run(self, schedule: StoredSchedule) -> Outcome:
        """Run a job with at most the rights that its owner has now; see `run_job`. Raises: Unavailable."""
        self.announce(f"{schedule.handle} starts")
        owners = self.owners()
        if schedule.owner not in owners:
            raise Unavailable("The token of its owner was revoked or has expired.")
        grant = owners[schedule.owner]
        own = self.app if grant is None else application_of(self.app, grant)
        try:
            outcome = await run_job(own.dispatcher, schedule, own.changes.forget)
        finally:
            if grant is not None:
                with anyio.CancelScope(shield=True):
                    await own.end()
        self.announce(f"{schedule.handle} {'succeeded' if outcome.succeeded else 'failed'}")
        return outcome


async def run_schedules(jobs: Jobs) -> None:
    """Run what is due until cancelled."""
    store = StoredSchedules(jobs.app.shared.database)
    await Scheduler(store, SystemClock(), jobs.run, jobs.owners, is_held=jobs.is_held).serve()
