"""Schedules of a test, on a clock that it sets."""

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio

from mcp_toolserver.app import confinement
from mcp_toolserver.app.compose import Application, build_application
from mcp_toolserver.app.schedules import Jobs
from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.capabilities.cron import Job
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.protocol.http.tokens import GrantFile
from mcp_toolserver.runtime.clock import SystemClock
from mcp_toolserver.runtime.cron.scheduler import Owners, Run, Scheduler
from mcp_toolserver.runtime.executables import find_host_executables
from mcp_toolserver.runtime.processes.broker_client import start_standalone_broker
from mcp_toolserver.settings import Settings
from mcp_toolserver.stores.cron import Outcome, StoredSchedule, StoredSchedules
from mcp_toolserver.stores.database import Database
from tests.support.workbench import Person


class SetClock(SystemClock):
    """A clock that shows what the test sets, in seconds since 1970; sleeping waits until it is woken."""

    def __init__(self, moment: float = 0.0) -> None:
        self.moment = moment
        self.asleep = anyio.Event()
        self.slept: list[float] = []
        self.awake = anyio.Event()

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
    **limits: Any,
) -> Scheduler:
    return Scheduler(stored, clock, run, owners, **limits)


async def look(server: Scheduler) -> None:
    """Let a server look once, and wait for the end of what it starts."""
    with anyio.fail_after(20):
        async with anyio.create_task_group() as runs:
            await server.look(runs)


async def succeed(_: StoredSchedule) -> Outcome:
    return Outcome(succeeded=True, output="done")


@asynccontextmanager
async def application(
    folder: Path, mode: Permission = Permission.WORKSPACE_WRITE, **settings: Any
) -> AsyncGenerator[Application]:
    """A server of `folder/root` without a transport, with the sandboxes of its mode."""
    (folder / "root").mkdir(exist_ok=True)
    given: dict[str, Any] = {"permission_mode": mode, "toolsets": ("all",), **settings}
    chosen = Settings(root=(str(folder / "root"),), state_dir=str(folder / "state"), **given)
    found = find_host_executables(os.environ, chosen.root)
    broker = start_standalone_broker(confinement.broker_policy(chosen, found))
    app = build_application(chosen, broker, found, held_by=0)
    try:
        yield app
    finally:
        await app.aclose()


async def call(app: Application, tool: str, **arguments: Any) -> Result:
    """A call that must come back."""
    return await call_by(Person(), app, tool, **arguments)


async def call_by(person: Person, app: Application, tool: str, **arguments: Any) -> Result:
    """A call of `person` that must come back."""
    with anyio.fail_after(30):
        return await app.dispatcher.call(tool, arguments, person)


async def create(app: Application, **arguments: Any) -> str:
    """Create a schedule in UTC; its id."""
    result = await call(app, "CronCreate", **{"schedule": "@hourly", "time_zone": "UTC", **arguments})
    assert result.data is not None, result.text
    return str(result.data["cron_id"])


async def run_next(app: Application, grants: GrantFile | None = None) -> None:
    """Let a server run what is due in the next hour, and wait for its end."""
    stored = StoredSchedules(app.shared.database)
    (first, *_) = await stored.all()
    assert first.next is not None
    jobs = Jobs(app=app, grants=grants)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as runs:
            server = Scheduler(stored, SetClock(first.next), jobs.run, jobs.owners, is_held=jobs.is_held)
            await server.look(runs)
    stored.close()
