"""Stores schedules, so that each due time is run at most once by all servers of a workspace.

A server claims a due time in one transaction that moves the schedule on to its next time and adds the run to
the task board, which knows from then on what becomes of it. Times are whole seconds since 1970.
"""

import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from mcp_toolserver.capabilities.cron import Job, RunOutcome, runs_of
from mcp_toolserver.capabilities.tasks import NewTask
from mcp_toolserver.errors import InvalidInput, NotFound
from mcp_toolserver.pipeline.call import Rights
from mcp_toolserver.pipeline.stored_rights import require
from mcp_toolserver.stores.board import DIED, StoredBoard
from mcp_toolserver.stores.database import Connection
from mcp_toolserver.text.board import headline
from mcp_toolserver.text.lines.encoding import decode_page

PREFIX = "cron_"

MAX_SCHEDULES = 100
"""Schedules of one owner."""

_TABLES = (
    """CREATE TABLE IF NOT EXISTS cron_schedules (
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, fields TEXT NOT NULL, zone TEXT NOT NULL,
        kind TEXT NOT NULL, job TEXT NOT NULL, description TEXT NOT NULL, catch_up INTEGER NOT NULL,
        rights TEXT NOT NULL, created INTEGER NOT NULL, next INTEGER, missed INTEGER NOT NULL,
        last_missed INTEGER, run_count INTEGER NOT NULL
    )""",
    "ALTER TABLE cron_schedules ADD COLUMN once INTEGER NOT NULL DEFAULT 0",
)


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run of a schedule."""

    task: str
    due: int
    began: float | None
    """None while it waits for its server."""
    ended: float | None
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
    once: bool
    """Whether it ends with its first run."""
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


class StoredSchedules:
    """The schedules of a workspace, as one server uses them. Opens nothing before the first use.

    Every coroutine raises Conflict and Unavailable as `Database.run` does.
    """

    def __init__(self, board: StoredBoard) -> None:
        self.board = board

    @property
    def exists(self) -> bool:
        """Whether the workspace has stored state; without, there are no schedules."""
        return os.path.lexists(self.board.path)

    async def create(self, schedule: StoredSchedule) -> None:
        """Store a new schedule, unless its owner has too many.

        Raises:
            InvalidInput: its owner has too many.
        """

        def work(database: Connection, _: object) -> None:
            (count,) = database.execute(
                "SELECT count(*) FROM cron_schedules WHERE owner = ?", (schedule.owner,)
            ).fetchone()
            if count >= MAX_SCHEDULES:
                raise InvalidInput(
                    f"There are {count} schedules, and there can be no more. Delete one with CronDelete."
                )
            database.execute(
                "INSERT INTO cron_schedules VALUES (:handle, :owner, :fields, :zone, :kind, :job, "
                ":description, :catch_up, :rights, :created, :next, 0, NULL, 0, :once)",
                {**vars(schedule), "kind": schedule.job.kind, "job": schedule.job.text},
            )

        await self.board.run(work, _TABLES)

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

        def work(database: Connection, _: object) -> int:
            database.execute("DELETE FROM board WHERE schedule = ?", (handle,))
            statement = "DELETE FROM cron_schedules WHERE id = ? AND owner = ?"
            return database.execute(statement, (handle, owner)).rowcount

        if found is None or not await self.board.run(work, _TABLES):
            raise NotFound("There is no such schedule. CronList shows all with their cron_id.")
        return found

    async def due(self, now: float, owners: Collection[str]) -> tuple[StoredSchedule, ...]:
        """Return the schedules of `owners` that are due and do not run, the longest due first."""
        statement = (
            "SELECT * FROM cron_schedules WHERE next <= ? AND id NOT IN (SELECT schedule FROM board "
            "WHERE status IN ('pending', 'in_progress')) ORDER BY next, id"
        )
        return tuple(one for one in await self._select(statement, now) if one.owner in owners)

    async def claim(self, claim: Claim) -> bool:
        """Move a schedule on, and add its run to the board for this server; false if another server has
        moved it on or runs it."""
        found, due = claim.schedule, claim.due

        def work(database: Connection, news: Any) -> bool:
            moved = database.execute(
                "UPDATE cron_schedules SET next = ?, missed = missed + ?, run_count = run_count + ?, "
                "last_missed = coalesce(?, last_missed) WHERE id = ? AND next = ? AND id NOT IN "
                "(SELECT schedule FROM board WHERE status IN ('pending', 'in_progress'))",
                (
                    None if found.once and due is not None else claim.next,
                    claim.missed,
                    int(due is not None),
                    claim.last_missed,
                    found.handle,
                    found.next,
                ),
            )
            if moved.rowcount and due is not None:
                kind, text = found.job.kind, found.job.text
                task = NewTask(
                    subject=headline(found.description, text),
                    prompt=text if kind == "prompt" else "",
                    command=text if kind == "command" else "",
                )
                run = runs_of(found.owner), found.handle, due
                self.board.add_run(database, news, task, found.rights, run)
            return bool(moved.rowcount)

        return await self.board.run(work, _TABLES)

    async def _select(self, statement: str, value: object) -> tuple[StoredSchedule, ...]:
        """Return the schedules that `statement` selects."""
        if not self.exists:
            return ()

        def work(database: Connection, _: object) -> tuple[StoredSchedule, ...]:
            rows = database.execute(statement, (value,)).fetchall()
            return tuple(_schedule(database, row) for row in rows)

        return await self.board.run(work, _TABLES)


def _schedule(database: Connection, row: Any) -> StoredSchedule:
    values: dict[str, Any] = {**row, "catch_up": bool(row["catch_up"]), "once": bool(row["once"])}
    handle, kind, text = (values.pop(name) for name in ("id", "kind", "job"))
    runs = database.execute(
        "SELECT id, due, began, updated, status, reason, output, output_start FROM board WHERE schedule = ? "
        "ORDER BY number DESC",
        (handle,),
    )
    stored = tuple(map(_run, runs))
    return StoredSchedule(**values, handle=handle, job=Job(kind=kind, text=text), runs=stored)


def _run(row: Any) -> StoredRun:
    status, died = row["status"], row["reason"] == DIED
    outcomes: dict[str, RunOutcome] = {
        "pending": "waiting",
        "in_progress": "running",
        "completed": "succeeded",
    }
    outcome = "interrupted" if died else outcomes.get(status, "failed")
    output = decode_page(row["output"], last=True)[0]
    left_out = f"[{row['output_start']} bytes before are not kept]" if row["output_start"] else ""
    reason = "" if died else row["reason"]
    return StoredRun(
        task=row["id"],
        due=row["due"],
        began=row["began"],
        ended=None if died or outcome in ("waiting", "running") else row["updated"],
        outcome=outcome,
        output="\n".join(filter(None, (left_out, output.removesuffix("\n"), reason))),
    )
