"""Stores schedules and their runs, so that each due time is run at most once by all servers of a workspace.

A server claims a due time in one transaction that also moves the schedule on to its next time. It holds a
lock while it lives; the next look marks the runs of a dead server as interrupted. Times are whole seconds
since 1970.
"""

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mcp_toolserver.capabilities.cron import Job, RunOutcome
from mcp_toolserver.errors import InvalidInput, NotFound
from mcp_toolserver.pipeline.call import Rights
from mcp_toolserver.pipeline.stored_rights import require
from mcp_toolserver.stores.database import Connection, Database
from mcp_toolserver.stores.file_lock import ServerLiveness
from mcp_toolserver.text.lines.encoding import head_bytes, tail_bytes

PREFIX = "cron_"

MAX_SCHEDULES = 100
"""Schedules of one owner."""

MAX_OUTPUT_BYTES = 8_000
"""Stored output of one run."""

KEPT_RUNS = 20
"""Stored runs of one schedule."""

_TABLES = (
    """CREATE TABLE IF NOT EXISTS cron_schedules (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, fields TEXT NOT NULL, zone TEXT NOT NULL,
        kind TEXT NOT NULL, job TEXT NOT NULL, description TEXT NOT NULL, catch_up INTEGER NOT NULL,
        rights TEXT NOT NULL, created INTEGER NOT NULL, next INTEGER, missed INTEGER NOT NULL,
        last_missed INTEGER, run_count INTEGER NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS cron_runs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        schedule TEXT NOT NULL REFERENCES cron_schedules ON DELETE CASCADE, due INTEGER NOT NULL,
        server TEXT NOT NULL, started INTEGER NOT NULL, ended INTEGER, outcome TEXT NOT NULL,
        output TEXT NOT NULL, UNIQUE (schedule, due)
    )""",
)


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run of a schedule."""

    due: int
    started: int
    ended: int | None
    outcome: RunOutcome
    output: str


@dataclass(frozen=True, kw_only=True)
class StoredSchedule:
    """A schedule of an owner."""

    handle: str
    owner: str
    fields: str
    zone: str
    job: Job
    description: str
    catch_up: bool
    rights: str
    """JSON: the rights of whoever created it."""
    created: int
    next: int | None
    missed: int = 0
    last_missed: int | None = None
    run_count: int = 0
    runs: tuple[StoredRun, ...] = ()
    """Newest first."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Moves a schedule on to its next time."""

    schedule: StoredSchedule
    """As it was read."""
    due: int | None
    """The time to run now; None to run nothing."""
    next: int | None
    missed: int
    """How many further times are missed."""
    last_missed: int | None


@dataclass(frozen=True, kw_only=True)
class ClaimedRun:
    """A run that this server has to do."""

    id: int
    schedule: StoredSchedule
    due: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended."""

    succeeded: bool
    output: str


class StoredSchedules:
    """The schedules of a workspace, as one server uses them. Opens nothing before the first use.

    Every coroutine raises Conflict and Unavailable as `Database.run` does.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._server = ServerLiveness(f"{database.path}.cron-")

    @property
    def exists(self) -> bool:
        """Whether the workspace has stored state; without, there are no schedules."""
        return os.path.lexists(self._database.path)

    async def create(self, schedule: StoredSchedule) -> None:
        """Store a new schedule, unless its owner has too many.

        Raises:
            InvalidInput: its owner has too many.
        """

        def work(database: Connection) -> None:
            (count,) = database.execute(
                "SELECT count(*) FROM cron_schedules WHERE owner = ?", (schedule.owner,)
            ).fetchone()
            if count >= MAX_SCHEDULES:
                raise InvalidInput(
                    f"There are {count} schedules, and there can be no more. Delete one with CronDelete."
                )
            database.execute(
                "INSERT INTO cron_schedules VALUES (:handle, :owner, :fields, :zone, :kind, :job, "
                ":description, :catch_up, :rights, :created, :next, 0, NULL, 0)",
                {**vars(schedule), "kind": schedule.job.kind, "job": schedule.job.text},
            )

        await self._database.run(work, _TABLES)

    async def all(self, owner: str | None = None) -> tuple[StoredSchedule, ...]:
        """Return the schedules of `owner` or of all owners, the oldest first, with their runs."""
        statement = "SELECT * FROM cron_schedules WHERE owner = coalesce(?, owner) ORDER BY rowid"
        return await self._select(statement, owner)

    async def delete(self, handle: str, owner: str, rights: Rights) -> StoredSchedule:
        """Delete a schedule with its runs; whoever runs it stops it. Returns what it was. `rights` are those
        of the caller.

        Raises:
            NotFound: `owner` has no such schedule.
            Denied: it runs with a right that the caller does not have.
        """
        found = next((one for one in await self.all(owner) if one.handle == handle), None)
        if found is not None:
            require(rights, found.rights, f"{handle} ({found.fields})")

        def work(database: Connection) -> int:
            statement = "DELETE FROM cron_schedules WHERE id = ? AND owner = ?"
            return database.execute(statement, (handle, owner)).rowcount

        if found is None or not await self._database.run(work):
            raise NotFound("There is no such schedule. CronList shows all with their cron_id.")
        return found

    async def due(self, now: float, owners: Collection[str]) -> tuple[StoredSchedule, ...]:
        """Return the schedules of `owners` that are due and do not run, the longest due first."""
        found = await self._select(
            "SELECT * FROM cron_schedules WHERE next <= ? AND id NOT IN "
            "(SELECT schedule FROM cron_runs WHERE outcome = 'running') ORDER BY next, id",
            now,
        )
        return tuple(one for one in found if one.owner in owners)

    async def claim(self, claims: Sequence[Claim], now: float) -> tuple[ClaimedRun, ...]:
        """Move schedules on that no other server has moved on or runs; returns the runs to do."""
        if not claims:
            return ()

        def work(database: Connection) -> tuple[ClaimedRun, ...]:
            self._server.acquire()
            claimed = (self._claim(database, claim, now) for claim in claims)
            return tuple(run for run in claimed if run is not None)

        return await self._database.run(work)

    async def existing(self, runs: Iterable[int]) -> frozenset[int]:
        """Return those of `runs` whose schedule was not deleted."""
        wanted = tuple(runs)
        places = ", ".join("?" * len(wanted))
        statement = f"SELECT id FROM cron_runs WHERE id IN ({places})"  # noqa: S608  only ?
        return frozenset(run for (run,) in await self._database.rows(statement, wanted))

    async def finish(self, run: ClaimedRun, outcome: Outcome, now: float) -> None:
        """Store how a run ended, unless its schedule was deleted."""

        def work(database: Connection) -> None:
            database.execute(
                "UPDATE cron_runs SET ended = ?, outcome = ?, output = ? WHERE id = ?",
                (int(now), "succeeded" if outcome.succeeded else "failed", _bounded(outcome.output), run.id),
            )
            database.execute(
                "DELETE FROM cron_runs WHERE outcome != 'running' AND id IN "
                "(SELECT id FROM cron_runs WHERE schedule = ? ORDER BY id DESC LIMIT -1 OFFSET ?)",
                (run.schedule.handle, KEPT_RUNS),
            )

        await self._database.run(work)

    def close(self) -> None:
        """Let others mark the runs that have not ended as interrupted."""
        self._server.release()

    def _claim(self, database: Connection, claim: Claim, now: float) -> ClaimedRun | None:
        moved = database.execute(
            "UPDATE cron_schedules SET next = ?, missed = missed + ?, run_count = run_count + ?, "
            "last_missed = coalesce(?, last_missed) WHERE id = ? AND next = ? AND id NOT IN "
            "(SELECT schedule FROM cron_runs WHERE outcome = 'running')",
            (
                claim.next,
                claim.missed,
                int(claim.due is not None),
                claim.last_missed,
                claim.schedule.handle,
                claim.schedule.next,
            ),
        )
        if not moved.rowcount or claim.due is None:
            return None
        added = database.execute(
            "INSERT INTO cron_runs (schedule, due, server, started, outcome, output) "
            "VALUES (?, ?, ?, ?, 'running', '')",
            (claim.schedule.handle, claim.due, self._server.name, int(now)),
        )
        assert added.lastrowid is not None
        return ClaimedRun(id=added.lastrowid, schedule=claim.schedule, due=claim.due)

    async def _select(self, statement: str, value: object) -> tuple[StoredSchedule, ...]:
        """Return the schedules that `statement` selects, after marking the runs of dead servers."""
        if not self.exists:
            return ()

        def work(database: Connection) -> tuple[StoredSchedule, ...]:
            if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'cron_runs'").fetchone():
                return ()
            running = database.execute("SELECT DISTINCT server FROM cron_runs WHERE outcome = 'running'")
            for server in self._server.dead_of(running):
                database.execute(
                    "UPDATE cron_runs SET outcome = 'interrupted' WHERE outcome = 'running' AND server = ?",
                    (server,),
                )
            rows = database.execute(statement, (value,)).fetchall()
            return tuple(_schedule(database, row) for row in rows)

        return await self._database.run(work)


def _schedule(database: Connection, row: Any) -> StoredSchedule:
    values: dict[str, Any] = {**row, "catch_up": bool(row["catch_up"])}
    handle, kind, text = (values.pop(name) for name in ("id", "kind", "job"))
    runs = database.execute(
        "SELECT due, started, ended, outcome, output FROM cron_runs WHERE schedule = ? "
        "ORDER BY id DESC LIMIT ?",
        (handle, KEPT_RUNS),
    )
    stored = tuple(StoredRun(**run) for run in runs)
    return StoredSchedule(**values, handle=handle, job=Job(kind=kind, text=text), runs=stored)


def _bounded(output: str) -> str:
    """Leave out the middle of a long output."""
    if len(head_bytes(output, MAX_OUTPUT_BYTES)) == len(output):
        return output
    start, end = (cut(output, MAX_OUTPUT_BYTES // 2) for cut in (head_bytes, tail_bytes))
    left_out = len(output.encode(errors="surrogatepass")) - len(start.encode()) - len(end.encode())
    return f"{start}\n[{left_out} bytes are left out]\n{end}"
