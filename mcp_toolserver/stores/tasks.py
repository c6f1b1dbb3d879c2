"""Calls that outlive the request they came in: what has become of each, also after the server has ended.

A row is written when a task begins and when it has ended; in between only the server that runs it knows more.
The task of a server that died without a word is found to have failed by the next that looks at it.
"""

import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from mcp_toolserver.errors import ToolError, Unavailable
from mcp_toolserver.stores.database import Database
from mcp_toolserver.stores.presence import Presence, forget, lives

if TYPE_CHECKING:
    import sqlite3

log = logging.getLogger(__name__)

Status = Literal["working", "input_required", "completed", "cancelled", "failed"]

SHUT_DOWN = "It was cancelled when the server that ran it was shut down."
DIED = "The server that ran this call ended before the call did."

_TABLE = """CREATE TABLE IF NOT EXISTS tasks (
    id TEXT PRIMARY KEY, principal TEXT NOT NULL, owner TEXT NOT NULL, status TEXT NOT NULL,
    message TEXT NOT NULL, created REAL NOT NULL, updated REAL NOT NULL, outcome TEXT NOT NULL
)"""


@dataclass(frozen=True, kw_only=True)
class TaskBounds:
    """How much is kept of the tasks of one workspace."""

    tasks: int = 512
    outcome_bytes: int = 64 << 20
    """Of all together."""
    seconds: float = 3600.0
    """How long a task can be asked for after its end."""


@dataclass(frozen=True, kw_only=True)
class TaskRecord:
    """One task, as far as it is written down."""

    id: str
    principal: str
    """Whose it is; nobody else is told that it exists."""
    status: Status = "working"
    message: str = ""
    created: float = field(default_factory=time.time)
    """Seconds since 1970, as `updated`."""
    updated: float = field(default_factory=time.time)
    outcome: str = ""
    """JSON: the result of a call that completed, the error of one that failed."""


class StoredTasks:
    """The tasks of a workspace. Nothing is opened before the first is kept or asked for."""

    def __init__(
        self, database: Database, bounds: TaskBounds | None = None, *, now: Callable[[], float] = time.time
    ) -> None:
        self._database = database
        self.bounds = bounds or TaskBounds()
        self._now = now
        self._owner = secrets.token_hex(8)
        self._presence: Presence | None = None
        self._closed = False

    async def keep(self, record: TaskRecord) -> None:
        """Write down a task that has begun, or ended.

        Raises:
            Unavailable: there is no room for it, or the server is ending.
            Conflict: another server was in the way.
        """
        if self._closed:
            raise Unavailable("The server is ending; no task is kept any more.")

        def work(database: "sqlite3.Connection") -> None:
            self._prepare(database)
            self._arrive(database)
            self._check_room(database, record)
            _write(database, record, self._owner)

        await self._database.run(work)

    async def find(self, task: str, principal: str) -> TaskRecord | None:
        """The task with this id, if `principal` has one.

        Raises:
            Unavailable, Conflict: the store cannot be read.
        """

        def work(database: "sqlite3.Connection") -> TaskRecord | None:
            self._prepare(database)
            row = database.execute(
                "SELECT id, principal, status, message, created, updated, outcome FROM tasks "
                "WHERE id = ? AND principal = ?",
                (task, principal),
            ).fetchone()
            return row and TaskRecord(
                id=row[0],
                principal=row[1],
                status=row[2],
                message=row[3],
                created=row[4],
                updated=row[5],
                outcome=row[6],
            )

        return await self._database.run(work)

    async def settle(self) -> None:
        """Write down that what still works here was cancelled: all at once, for the end has little time."""
        await self._finish(self._cancelled)

    async def aclose(self) -> None:
        """The same, and keep nothing afterwards."""
        self._closed = True
        await self._finish(self._end)

    async def _finish(self, work: "Callable[[sqlite3.Connection], None]") -> None:
        if self._presence is None:
            return
        try:
            await self._database.run(work)
        except ToolError as error:
            log.warning("tasks that were cancelled could not be written down: %s", error)

    def _cancelled(self, database: "sqlite3.Connection") -> None:
        self._settle(database, self._owner, "cancelled", SHUT_DOWN)

    def _end(self, database: "sqlite3.Connection") -> None:
        self._cancelled(database)
        if self._presence is not None:
            self._presence.leave()
            self._presence = None

    def _prepare(self, database: "sqlite3.Connection") -> None:
        """Make the table, find out whose servers are gone, and remove what has expired."""
        database.execute(_TABLE)
        for (owner,) in database.execute(
            "SELECT DISTINCT owner FROM tasks WHERE status = 'working' AND owner != ?", (self._owner,)
        ).fetchall():
            self._bury(database, owner)
        expired = self._now() - self.bounds.seconds
        database.execute("DELETE FROM tasks WHERE status != 'working' AND updated < ?", (expired,))

    def _arrive(self, database: "sqlite3.Connection") -> None:
        """Let other servers see that this one lives, and look once for all that do no more."""
        if self._presence is None:
            self._presence = Presence(self._place(self._owner))
            for owner in self._strangers():
                self._bury(database, owner)

    def _check_room(self, database: "sqlite3.Connection", record: TaskRecord) -> None:
        count, size = database.execute(
            "SELECT count(*), coalesce(sum(length(CAST(outcome AS BLOB))), 0) FROM tasks WHERE id != ?",
            (record.id,),
        ).fetchone()
        if count >= self.bounds.tasks or size + len(record.outcome.encode()) > self.bounds.outcome_bytes:
            raise Unavailable("So much is kept of tasks already that there is no room for another.")

    def _place(self, owner: str) -> str:
        return f"{self._database.path}.tasks-{owner}"

    def _strangers(self) -> Iterator[str]:
        folder, _, prefix = self._place("").rpartition("/")
        for name in os.listdir(folder):
            if name.startswith(prefix):
                yield name.removeprefix(prefix)

    def _bury(self, database: "sqlite3.Connection", owner: str) -> None:
        """If that server is gone, its tasks have failed. This and arriving are transactions."""
        if lives(self._place(owner)):
            return
        self._settle(database, owner, "failed", DIED)
        forget(self._place(owner))

    def _settle(self, database: "sqlite3.Connection", owner: str, status: Status, message: str) -> None:
        database.execute(
            "UPDATE tasks SET status = ?, message = ?, updated = ? WHERE owner = ? AND status = 'working'",
            (status, message, self._now(), owner),
        )


def _write(database: "sqlite3.Connection", record: TaskRecord, owner: str) -> None:
    database.execute(
        "INSERT OR REPLACE INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            record.id,
            record.principal,
            owner,
            record.status,
            record.message,
            record.created,
            record.updated,
            record.outcome,
        ),
    )
