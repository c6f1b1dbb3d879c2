"""Stores agents and their conversations per workspace. Only the owner can read one, by its handle.

A row is written when an agent begins and after each of its steps. The next server marks agents of a dead
server as lost.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mcp_toolserver.capabilities.agents import AgentState
from mcp_toolserver.capabilities.model import Message
from mcp_toolserver.errors import NotFound
from mcp_toolserver.stores.database import Connection, Database
from mcp_toolserver.text.agents.conversation import Role, decoded, encoded, role, transcript

T = TypeVar("T")

_TABLES = (
    """CREATE TABLE IF NOT EXISTS agents (
        handle TEXT PRIMARY KEY, owner TEXT NOT NULL, server TEXT NOT NULL, type TEXT NOT NULL,
        name TEXT NOT NULL, description TEXT NOT NULL, status TEXT NOT NULL, detail TEXT NOT NULL,
        text TEXT NOT NULL, notes TEXT NOT NULL, turns INTEGER NOT NULL, tokens INTEGER NOT NULL, cost REAL,
        seconds REAL NOT NULL, size INTEGER NOT NULL, created REAL NOT NULL, updated REAL NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS agent_messages (
        agent TEXT NOT NULL REFERENCES agents ON DELETE CASCADE, position INTEGER NOT NULL,
        role TEXT NOT NULL, content TEXT NOT NULL, PRIMARY KEY (agent, position)
    )""",
    """CREATE TABLE IF NOT EXISTS agent_changes (
        agent TEXT NOT NULL REFERENCES agents ON DELETE CASCADE, path TEXT NOT NULL,
        PRIMARY KEY (agent, path)
    )""",
)

_WRITE = """INSERT INTO agents VALUES (
        :handle, :owner, :server, :type, :name, :description, :status, :detail, :text, :notes, :turns,
        :tokens, :cost, :seconds, :size, :created, :updated
    ) ON CONFLICT (handle) DO UPDATE SET
        server = excluded.server, status = excluded.status, detail = excluded.detail, text = excluded.text,
        notes = excluded.notes, turns = excluded.turns, tokens = excluded.tokens, cost = excluded.cost,
        seconds = excluded.seconds, size = excluded.size, updated = excluded.updated"""

KEPT = 200
"""Agents of one workspace; beyond it, those that ended first are removed first."""

KEPT_BYTES = 64 << 20
"""Total bytes of stored messages."""

KEPT_SECONDS = 7 * 86_400.0
"""How long an agent is kept after its end."""

_SHOWN = ("name", "type", "description", "status", "detail", "text", "turns", "tokens", "cost", "changed")
"""Fields of a record that the transcript shows."""


@dataclass(frozen=True, kw_only=True)
class AgentRecord(AgentState):
    """The stored state of one agent. Its `step` is not stored."""

    owner: str
    size: int = 0
    """Bytes of its messages."""
    created: float = field(default_factory=time.time)
    """Seconds since 1970, as is `updated`."""
    updated: float = field(default_factory=time.time)


class StoredAgents:
    """The agents of a workspace. Opens nothing before the first use.

    Every method that uses the database raises Unavailable and Conflict as `Database.run` does.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(self, record: AgentRecord, messages: Sequence[Message] = (), *, at: int = 0) -> None:
        """Store an agent, and `messages` as those from position `at` of its conversation on."""
        rows = [
            (record.handle, position, role(message), encoded(message))
            for position, message in enumerate(messages, start=at)
        ]

        def work(database: Connection) -> None:
            server = self._database.server.acquire()
            notes = "".join(f"{note}\n" for note in record.notes)
            database.execute(_WRITE, {**vars(record), "notes": notes, "server": server})
            database.executemany("INSERT OR REPLACE INTO agent_messages VALUES (?, ?, ?, ?)", rows)
            changed = [(record.handle, path) for path in record.changed]
            database.executemany("INSERT OR IGNORE INTO agent_changes VALUES (?, ?)", changed)
            self._expire(database)

        await self._run(work)

    async def find(self, handle: str, owner: str) -> AgentRecord:
        """The agent with this handle. Raises: NotFound: `owner` has none with it."""
        return await self._run(lambda database: _find(database, handle, owner))

    async def messages(self, handle: str) -> list[Message]:
        """The conversation of an agent."""
        stored = await self._run(lambda database: _messages(database, handle))
        return [decoded(sender, content) for sender, content in stored]

    async def transcript(self, handle: str, owner: str) -> str:
        """An agent and its conversation as JSON. Raises: as `find`."""

        def work(database: Connection) -> str:
            record = _find(database, handle, owner)
            about: dict[str, object] = {"id": record.handle}
            about.update({name: getattr(record, name) for name in _SHOWN})
            return transcript(about, _messages(database, handle))

        return await self._run(work)

    async def remove(self, owner: str) -> None:
        """Remove the agents of `owner`."""
        await self._run(lambda database: database.execute("DELETE FROM agents WHERE owner = ?", (owner,)))

    async def give(self, owner: str, to: str) -> None:
        """Let `to` continue and read the agents of `owner`."""
        await self._run(
            lambda database: database.execute("UPDATE agents SET owner = ? WHERE owner = ?", (to, owner))
        )

    async def _run(self, work: Callable[[Connection], T]) -> T:
        """Run `work` as one transaction, after marking the running agents of dead servers as lost."""

        def prepared(database: Connection) -> T:
            others = database.execute("SELECT DISTINCT server FROM agents WHERE status = 'running'")
            for name in self._database.server.dead_of(others):
                database.execute(
                    "UPDATE agents SET status = 'lost', updated = ? WHERE server = ? AND status = 'running'",
                    (time.time(), name),
                )
            return work(database)

        return await self._database.run(prepared, _TABLES)

    def _expire(self, database: Connection) -> None:
        """Remove agents that ended long ago, and those that ended first while there are too many."""
        expired = time.time() - KEPT_SECONDS
        database.execute("DELETE FROM agents WHERE status != 'running' AND updated < ?", (expired,))
        kept = total = 0
        for handle, status, size in database.execute(
            "SELECT handle, status, size FROM agents "
            "ORDER BY status = 'running' DESC, updated DESC, rowid DESC"
        ).fetchall():
            kept, total = kept + 1, total + size
            if status != "running" and (kept > KEPT or total > KEPT_BYTES):
                database.execute("DELETE FROM agents WHERE handle = ?", (handle,))


def _find(database: Connection, handle: str, owner: str) -> AgentRecord:
    row = database.execute("SELECT * FROM agents WHERE handle = ? AND owner = ?", (handle, owner)).fetchone()
    if row is None:
        raise NotFound(
            "There is no agent with this id; it was never given, or its record is no longer kept. Use the id "
            "that Agent returned."
        )
    values: dict[str, Any] = {**row, "notes": tuple(row["notes"].splitlines())}
    del values["server"]
    changed = database.execute("SELECT path FROM agent_changes WHERE agent = ? ORDER BY rowid", (handle,))
    return AgentRecord(**values, changed=tuple(path for (path,) in changed))


def _messages(database: Connection, handle: str) -> list[tuple[Role, str]]:
    return database.execute(
        "SELECT role, content FROM agent_messages WHERE agent = ? ORDER BY position", (handle,)
    ).fetchall()
