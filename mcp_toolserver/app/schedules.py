"""Runs the tasks and schedules of a workspace while a server runs: those of its user, and the schedules of
each name with a token.

Each due time runs at most once across all servers; the task board runs it. A server leaves a schedule that it
cannot run to others. A due time for which no server adds a run within a minute is missed: none that can run
it was there, or the previous run was still going. Cron expressions mean whole minutes, so a server looks once
a minute, and once a second while something runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from mcp_toolserver.app.compose import Application, application_of
from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.capabilities.cron import owner_of, runs_of
from mcp_toolserver.errors import InvalidInput, ToolError
from mcp_toolserver.runtime.clock import SystemClock
from mcp_toolserver.runtime.cron.schedules import GRACE_SECONDS, plan
from mcp_toolserver.runtime.tasks.runner import RUNS, TOOLS, TaskRunner
from mcp_toolserver.stores.cron import Claim, StoredSchedule, StoredSchedules

if TYPE_CHECKING:
    from mcp_toolserver.protocol.http.tokens import Grant, GrantFile

log = logging.getLogger(__name__)

_LOOK_SECONDS = 60.0
_WATCH_SECONDS = 1.0

_REVOKED = "It was stopped, because the rights of its owner changed."


@dataclass
class _Started:
    """What runs the schedules of an owner that had a run."""

    grant: Grant | None
    """The rights that the owner had then; None for the user of this server, whose rights do not change."""
    app: Application

    @property
    def runner(self) -> TaskRunner:
        return self.app.providers.runner()


@dataclass(kw_only=True)
class Schedules:
    """The schedules that `app` may run."""

    app: Application
    grants: GrantFile | None
    adopts: bool = False
    """Whether to take over tasks that ended servers left."""
    announce: Callable[[str], None] = lambda _: None
    """Gets a line at the start and at the end of each run, and for what this server cannot run."""
    clock: SystemClock = field(default_factory=SystemClock)
    _started: dict[str, _Started] = field(default_factory=dict[str, _Started])
    _waiting: dict[str, str] = field(default_factory=dict[str, str])
    """Why this server does not run each schedule whose time has come."""

    @cached_property
    def store(self) -> StoredSchedules:
        return StoredSchedules(self.app.providers.runner().board)

    async def serve(self) -> None:
        """Run what is due until cancelled, which ends the runs of named tokens. Others end with `app`."""
        try:
            while True:
                try:
                    await self.look()
                except ToolError as error:
                    log.warning("schedules could not be looked at: %s", error)
                await self.clock.sleep(await self._pause())
        finally:
            with anyio.CancelScope(shield=True):
                for started in self._started.values():
                    if started.grant is not None:
                        await started.app.end()

    async def look(self) -> None:
        """Stop what must not run any more, and start what is due and what was left. Raises: ToolError."""
        if not self.store.exists:
            return
        owners = self._owners()
        await self._end(owners)
        if self.adopts:
            runner = self.app.providers.runner()
            runner.adopts = True
            runner.look()
        now = await self._now()
        for schedule in await self.store.due(now, owners):
            await self._start(schedule, owners[schedule.owner], now)

    def _owners(self) -> Mapping[str, Grant | None]:
        """Whose schedules run, with their grant; None is the user of this server."""
        owners: dict[str, Grant | None] = {LOCAL: None}
        if self.grants is not None:
            # A later end changes nothing for what runs.
            grants = self.grants.grants().values()
            owners.update((owner_of(grant.name), replace(grant, expires=None)) for grant in grants)
        return owners

    async def _end(self, owners: Mapping[str, Grant | None]) -> None:
        """Stop the runs of owners whose rights have changed, and end the applications that run nothing."""
        for owner, started in tuple(self._started.items()):
            if started.grant is None:
                continue
            runner = started.runner
            if owners.get(owner) != started.grant:
                for run in runner.running(scheduled=True):
                    await runner.stop(run, _REVOKED)
            elif not runner.is_idle:
                continue
            del self._started[owner]
            await started.app.end()

    async def _start(self, schedule: StoredSchedule, grant: Grant | None, now: float) -> None:
        """Add the run of a schedule that is due, unless this server cannot run it now."""
        started = self._started.get(schedule.owner)
        if started is None:
            app = self.app if grant is None else application_of(self.app, grant)
            self._started[schedule.owner] = started = _Started(grant, app)
            started.runner.announce = self.announce
        runner = started.runner
        if why := await runner.obstacle(schedule.rights, TOOLS[schedule.job.kind]):
            if self._waiting.get(schedule.handle) != why:
                self.announce(f"{schedule.handle} waits for another server: {why}")
            self._waiting[schedule.handle] = why
            return
        claim = await to_thread.run_sync(_planned, schedule, now)
        if claim is None:
            return
        is_full = len(runner.running(scheduled=True)) >= RUNS
        if is_full and claim.due is not None and now - claim.due < GRACE_SECONDS / 2:
            # Another server may have a free place.
            return
        if await self.store.claim(claim):
            self._waiting.pop(schedule.handle, None)
            runner.owners.add(runs_of(schedule.owner))
            runner.look()

    async def _pause(self) -> float:
        """Seconds until the next look."""
        minute = _LOOK_SECONDS - await self._now() % _LOOK_SECONDS
        is_idle = all(one.runner.is_idle for one in self._started.values())
        return minute if is_idle else min(minute, _WATCH_SECONDS)

    async def _now(self) -> float:
        return (await self.clock.now()).timestamp()


def _planned(schedule: StoredSchedule, now: float) -> Claim | None:
    """The plan; None if the machine does not know the time zone any more."""
    try:
        return plan(schedule, now)
    except (InvalidInput, ValueError) as error:
        log.warning("%s does not run: %s", schedule.handle, error)
        return None
