"""Schedules of a test, on a clock that it sets."""

import os
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio

from mcp_toolserver.app import confinement
from mcp_toolserver.app.compose import Application, build_application
from mcp_toolserver.app.schedules import Schedules
from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.capabilities.cron import Job, runs_of
from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.pipeline import stored_rights
from mcp_toolserver.pipeline.call import Result, Rights
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.protocol.http.tokens import GrantFile
from mcp_toolserver.runtime.clock import SystemClock
from mcp_toolserver.runtime.executables import find_host_executables
from mcp_toolserver.runtime.tasks.service import OwnerTasks
from mcp_toolserver.settings import Settings
from mcp_toolserver.stores.board import Claim, Outcome, StoredBoard
from mcp_toolserver.stores.cron import Claim as Due
from mcp_toolserver.stores.cron import StoredRun, StoredSchedule, StoredSchedules
from mcp_toolserver.stores.database import Database
from tests.support.broker_forks import start_broker
from tests.support.workbench import Person
from tests.support.workshop import granted


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
    return StoredSchedules(StoredBoard(Database(str(folder), ["root"])))


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
        once=False,
        rights="{}",
        created=int(first),
        next=int(first),
    )


class Runner:
    """What runs the claimed runs of a board: `run` says how each ends."""

    def __init__(self, board: StoredBoard, run: Callable[[Claim], Awaitable[Outcome]]) -> None:
        self.board, self.run, self.free = board, run, 1_000
        self.owners, self.adopts = {runs_of(LOCAL)}, False
        self.runs: dict[str, Claim] = {}
        self.group: Any = None

    @property
    def is_idle(self) -> bool:
        return not self.runs

    def announce(self, _: str) -> None:
        """Nobody listens."""

    def running(self, *, scheduled: bool) -> list[Claim]:
        return list(self.runs.values()) if scheduled else []

    async def obstacle(self, rights: str, tool: str) -> str:
        return ""

    def look(self) -> None:
        self.group.start_soon(self._start)

    async def _start(self) -> None:
        claims, _ = await self.board.claim((0, self.free), self.owners)
        for claim in claims:
            self.runs[claim.id] = claim
            self.group.start_soon(self._do, claim)

    async def _do(self, claim: Claim) -> None:
        try:
            await self.board.finish(claim, await self.run(claim))
        finally:
            del self.runs[claim.id]


def scheduler(
    stored: StoredSchedules, clock: SetClock, run: Callable[[Claim], Awaitable[Outcome]]
) -> Schedules:
    """A server with these schedules, whose runs end as `run` says."""
    runner = Runner(stored.board, run)
    app: Any = SimpleNamespace(providers=SimpleNamespace(runner=lambda: runner))
    return Schedules(app=app, grants=None, clock=clock)


def runner_of(server: Schedules) -> Any:
    return server.app.providers.runner()


async def look(server: Schedules) -> None:
    """Let a server look once, and wait for the end of what it starts."""
    with anyio.fail_after(20):
        async with looking(server):
            pass


@asynccontextmanager
async def looking(server: Schedules) -> AsyncGenerator[None]:
    """Let a server look once, and wait at the end for that of what it starts."""
    async with anyio.create_task_group() as runner_of(server).group:
        await server.look()
        yield


async def succeed(_: Claim) -> Outcome:
    return Outcome(status="completed", output=b"done")


@asynccontextmanager
async def application(
    folder: Path, mode: Permission = Permission.WORKSPACE_WRITE, **settings: Any
) -> AsyncGenerator[Application]:
    """A server of `folder/root` without a transport, with the sandboxes of its mode."""
    (folder / "root").mkdir(exist_ok=True)
    given: dict[str, Any] = {"permission_mode": mode, "toolsets": ("all",), **settings}
    chosen = Settings(root=(str(folder / "root"),), state_dir=str(folder / "state"), **given)
    found = find_host_executables(os.environ, chosen.root)
    broker = start_broker(confinement.broker_policy(chosen, found))
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
    return str((result.data or {})["cron_id"])


async def at_next(app: Application, grants: GrantFile | None = None, **more: Any) -> Any:
    """What runs the schedules of a server, at the time of the first one."""
    (first, *_) = await schedules_of(app).all()
    return Schedules(app=app, grants=grants, clock=SetClock(float(first.next or 0)), **more)


async def run_next(app: Application, grants: GrantFile | None = None) -> None:
    """Let a server run what is due in the next hour, and wait for its end."""
    await run_due(await at_next(app, grants))


async def scheduled(server: Dispatcher, prompt: str) -> StoredRun:
    """The run of a schedule with this prompt, once it has ended."""
    runner = cast("OwnerTasks", granted(server, Capability.TASKS).tasks).runner
    stored = StoredSchedules(runner.board)
    one = replace(
        schedule(f"cron_{secrets.token_hex(8)}", first=0),
        job=Job(kind="prompt", text=prompt),
        rights=stored_rights.to_json(Rights()),
    )
    await stored.create(one)
    assert await stored.claim(Due(schedule=one, due=0, next=None, missed=0, last_missed=None))
    runner.owners.add(runs_of(LOCAL))
    runner.look()
    with anyio.fail_after(60):
        while True:
            (run,) = next(found.runs for found in await stored.all() if found.handle == one.handle)
            if run.ended is not None:
                await stored.delete(one.handle, LOCAL, Rights())
                return run
            await anyio.sleep(0.01)


def schedules_of(app: Application) -> StoredSchedules:
    return StoredSchedules(StoredBoard(app.shared.database))


async def run_due(server: Schedules) -> None:
    """Let a server run what is due, and wait for its end."""
    with anyio.fail_after(60):
        await server.look()
        while any(run.ended is None for one in await server.store.all() for run in one.runs[:1]):
            await anyio.sleep(0.01)
        # Ends the applications of names that run nothing.
        await server.look()
