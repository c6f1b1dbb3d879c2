"""Schedules of a test, on a clock that it sets."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import anyio

from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.capabilities.cron import Job
from mcp_toolserver.runtime.cron.scheduler import Owners, Run, RunLimits, Scheduler
from mcp_toolserver.stores.cron import Outcome, StoredSchedule, StoredSchedules
from mcp_toolserver.stores.database import Database


class SetClock:
    """A clock that shows what the test sets, in seconds since 1970; sleeping waits until it is woken."""

    def __init__(self, moment: float = 0.0) -> None:
        self.moment = moment
        self.asleep = anyio.Event()
        self.slept: list[float] = []
        self.awake = anyio.Event()

    @classmethod
    def at(cls, moment: str) -> "SetClock":
        return cls(seconds(moment))

    async def now(self, zone: str = "") -> datetime:
        return datetime.fromtimestamp(self.moment, UTC)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.asleep.set()
        await self.awake.wait()

    def wake(self) -> None:
        """End the sleep."""
        self.asleep, awake, self.awake = anyio.Event(), self.awake, anyio.Event()
        awake.set()


def seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def store(folder: Path) -> StoredSchedules:
    """A server's view of the schedules of one workspace."""
    return StoredSchedules(Database(str(folder), ["root"]))


def schedule(
    name: str = "cron_a",
    *,
    fields: str = "0 * * * *",
    zone: str = "Europe/Berlin",
    first: float,
    catch_up: bool = False,
    owner: str = LOCAL,
) -> StoredSchedule:
    """A schedule whose next time is `first`."""
    return StoredSchedule(
        handle=name,
        owner=owner,
        fields=fields,
        zone=zone,
        job=Job(kind="command", text="make test"),
        description="",
        catch_up=catch_up,
        rights="{}",
        created=int(first),
        next=int(first),
    )


def everybody() -> Mapping[str, object]:
    return {LOCAL: ""}


def scheduler(
    stored: StoredSchedules,
    clock: SetClock,
    run: Run,
    owners: Owners = everybody,
    limits: RunLimits = RunLimits(),  # noqa: B008  frozen
) -> Scheduler:
    return Scheduler(stored, clock, run, owners, limits)


async def look(server: Scheduler) -> None:
    """Let a server look once, and wait for the end of what it starts."""
    with anyio.fail_after(20):
        async with anyio.create_task_group() as runs:
            await server.look(runs)


async def succeed(_: StoredSchedule) -> Outcome:
    return Outcome(succeeded=True, output="done")
