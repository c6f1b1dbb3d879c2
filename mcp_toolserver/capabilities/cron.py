"""Schedules: what runs at which times while a server runs."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from mcp_toolserver.capabilities.call_scope import LOCAL

JobKind = Literal["prompt", "command"]

RunOutcome = Literal["waiting", "running", "succeeded", "failed", "interrupted"]


def owner_of(user: str) -> str:
    """Who owns the schedules of the clients with the token of `user`; empty without named tokens."""
    return f"token {user}" if user else LOCAL


def runs_of(owner: str) -> str:
    """The owner above those of all runs of the schedules of `owner`."""
    return f"runs for {owner}"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a schedule runs."""

    kind: JobKind
    text: str
    """The prompt of an agent, or the bash script."""


@dataclass(frozen=True, kw_only=True)
class NewSchedule:
    """A schedule to create."""

    fields: str
    """Five fields of a cron expression; see `text/cron.py`."""
    zone: str
    """The IANA name of the time zone; empty for that of the machine."""
    job: Job
    description: str
    catch_up: bool
    """Whether the latest missed run is made up for once."""
    once: bool
    """Whether it ends with its first run."""


@dataclass(frozen=True, kw_only=True)
class ScheduledRun:
    """One run of a schedule."""

    due: datetime
    """When it had to start, in the zone of the schedule."""
    started: datetime | None
    """None while it waits for a free place, or for the end of plan mode."""
    ended: datetime | None
    """None before its end, and of an interrupted run, whose end nobody saw."""
    outcome: RunOutcome
    output: str
    """Its last output, and why it failed."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A stored schedule. Times are in its zone."""

    handle: str
    """For its owner only."""
    fields: str
    zone: str
    job: Job
    description: str
    catch_up: bool
    once: bool
    created: datetime
    next: datetime | None
    """None: never again."""
    missed: int
    """Runs that did not start in time and were not made up for."""
    last_missed: datetime | None
    waits: str
    """Why its time has come and this server does not run it; empty if that is not so."""
    run_count: int
    runs: tuple[ScheduledRun, ...]
    """The stored ones, newest first."""
