"""Stores the state and outcome of tasks, which outlive their request and the server.

A row is written when a task begins and when it ends; in between only the running server knows its state. The
next server marks tasks of a dead server as failed.
"""

import logging
import time
from dataclasses import dataclass, field
from typing import Literal

from mcp_toolserver.errors import ToolError, Unavailable
from mcp_toolserver.stores.database import Connection, Database

log = logging.getLogger(__name__)

Status = Literal["working", "input_required", "completed", "cancelled", "failed"]

SHUT_DOWN = "It was cancelled when the server that ran it was shut down."
DIED = "The server that ran this call ended before the call did."

_TABLES = (
    """CREATE TABLE IF NOT EXISTS tasks (
    id TEXT PRIMARY KEY, principal TEXT NOT NULL, owner TEXT NOT NULL, status TEXT NOT NULL,
    message TEXT NOT NULL, created REAL NOT NULL, updated REAL NOT NULL, outcome TEXT NOT NULL
)""",
)


@dataclass(frozen=True, kw_only=True)
class TaskRetention:
    """Limits for the stored tasks of one workspace."""

    tasks: int = 512
    outcome_bytes: int = 64 << 20
    """Total bytes of stored outcomes."""
    seconds: float = 3600.0
    """How long a task is kept after its end."""


@dataclass(frozen=True, kw_only=True)
class TaskRecord:
    """The stored state of one task."""

    id: str
    principal: str
    """The client that owns the task; others cannot see it."""
    status: Status = "working"
    message: str = ""
    created: float = field(default_factory=time.time)
    """Seconds since 1970, as is `updated`."""
    updated: float = field(default_factory=time.time)
    outcome: str = ""
    """JSON: the result of a completed call, or the error of a failed one."""


class StoredTasks:
    """The tasks of a workspace. Opens nothing before the first use. `keep` and `find` raise Unavailable and
    Conflict as `Database.run` does."""

    def __init__(self, database: Database, retention: TaskRetention | None = None) -> None:
        self._database = database
        self.retention = retention or TaskRetention()
        self._running: set[str] = set()
        """The tasks that were stored here and have not ended."""
        self._closed = False

    async def keep(self, record: TaskRecord) -> None:
        """Store a task that has begun or ended. Raises: Unavailable: there is no space."""
        if self._closed:
            raise Unavailable("The server is shutting down and stores no more tasks.")

        def work(database: Connection) -> None:
            self._prepare(database)
            server = self._database.server.acquire()
            self._check_room(database, record)
            database.execute(
                "INSERT OR REPLACE INTO tasks VALUES "
                "(:id, :principal, :owner, :status, :message, :created, :updated, :outcome)",
                {**vars(record), "owner": server},
            )

        await self._database.run(work, _TABLES)
        (self._running.add if record.status == "working" else self._running.discard)(record.id)

    async def find(self, task: str, principal: str) -> TaskRecord | None:
        """Return the task with this id, if `principal` owns it.

        Raises:
            Unavailable, Conflict: the store cannot be read.
        """

        def work(database: Connection) -> TaskRecord | None:
            self._prepare(database)
            row = database.execute(
                "SELECT id, principal, status, message, created, updated, outcome FROM tasks "
                "WHERE id = ? AND principal = ?",
                (task, principal),
            ).fetchone()
            return row and TaskRecord(**row)

        return await self._database.run(work, _TABLES)

    async def aclose(self) -> None:
        """Mark running tasks as cancelled, and store nothing more."""
        self._closed = True
        await self.cancel_running()

    async def cancel_running(self) -> None:
        """Mark all running tasks as cancelled, in one transaction, because shutdown has little time."""
        if not self._running:
            return

        def work(database: Connection) -> None:
            for task in self._running:
                self._set_status(database, task, "cancelled", SHUT_DOWN)

        try:
            await self._database.run(work, _TABLES)
        except ToolError as error:
            log.warning("cancelled tasks could not be stored: %s", error)

    def _prepare(self, database: Connection) -> None:
        """Fail the tasks of dead servers, and remove expired tasks."""
        others = database.execute("SELECT DISTINCT owner FROM tasks WHERE status = 'working'")
        for name in self._database.server.dead_of(others):
            self._set_status(database, name, "failed", DIED)
        expired = time.time() - self.retention.seconds
        database.execute("DELETE FROM tasks WHERE status != 'working' AND updated < ?", (expired,))

    def _check_room(self, database: Connection, record: TaskRecord) -> None:
        count, size = database.execute(
            "SELECT count(*), coalesce(sum(length(CAST(outcome AS BLOB))), 0) FROM tasks WHERE id != ?",
            (record.id,),
        ).fetchone()
        if (
            count >= self.retention.tasks
            or size + len(record.outcome.encode()) > self.retention.outcome_bytes
        ):
            raise Unavailable("The storage for tasks is full.")

    def _set_status(self, database: Connection, which: str, status: Status, message: str) -> None:
        """End a running task, or all of a server."""
        database.execute(
            "UPDATE tasks SET status = ?, message = ?, updated = ? "
            "WHERE ? IN (id, owner) AND status = 'working'",
            (status, message, time.time(), which),
        )
