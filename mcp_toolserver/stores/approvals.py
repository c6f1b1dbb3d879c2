"""Stores the calls that wait for an approval, and the answers that are remembered.

All servers and the command `approvals` use one database in the state folder, which neither confined commands
nor tools reach. A request ends with the server that asks. Each answer is one transaction, so a request is
answered once, and an approval for one call is used once.
"""

import json
import os
import secrets
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import anyio

from mcp_toolserver.errors import NotFound
from mcp_toolserver.pipeline.approvals import MOST_SHOWN, MOST_STORED, Ask, Inquiry, digest
from mcp_toolserver.stores.database import Connection, Database
from mcp_toolserver.stores.file_lock import OPEN_LOCK, is_locked

APPROVALS = "approvals"
"""The name of the database."""

LIFETIME = 3600.0
"""Seconds that a request waits, and then an approval for one call."""

_SESSION_LIFETIME = 86_400.0
"""Seconds that an approval for a session lasts at most."""

_MOST_OF_ONE, _MOST = 20, 200
"""Requests of one owner, and in all; the oldest ends for a new one."""

POLL_SECONDS = 0.25

Status = Literal["asked", "waiting", "approved", "session", "denied", "pattern"]
"""Asked in the client; waiting for the operator; approved for one call, or for a session; denied; a rule that
approves calls."""

_TABLES = (
    """CREATE TABLE IF NOT EXISTS approvals (
        id TEXT PRIMARY KEY, status TEXT NOT NULL, digest TEXT NOT NULL, mark TEXT NOT NULL,
        server TEXT NOT NULL, owner TEXT NOT NULL, about TEXT NOT NULL, pattern TEXT NOT NULL,
        expires REAL NOT NULL
    )""",
)


@dataclass(frozen=True, kw_only=True)
class Approval:
    """A request, or an answer that is remembered."""

    id: str
    status: Status
    pattern: str
    expires: float
    """Seconds since 1970."""
    about: Mapping[str, str]
    """client, workspace, tool and question."""


@dataclass(frozen=True, kw_only=True)
class Approvals:
    """The approvals of all workspaces, and `approve` for the calls of a server in one of them.

    Coroutines raise Conflict and Unavailable as `Database.run` does.
    """

    database: Database
    workspace: str = ""
    """The roots of the server."""
    user: str = ""
    """The name whose token its clients have."""
    seconds: float = 0.0
    """How long a question waits for an answer."""
    flags: str = ""
    """What the command `approvals` needs to find the state folder."""

    async def approve(self, inquiry: Inquiry, ask: Ask) -> str:
        """Use a remembered answer, else ask the client, else wait while somebody watches (see `Approve`)."""
        end = time.monotonic() + min(self.seconds, inquiry.call.seconds_to_answer or self.seconds)
        which, status = await self.database.run(lambda database: self._open(database, inquiry), _TABLES)
        if status in ("asked", "waiting"):
            where = f"`mcp-toolserver approvals list {which}{self.flags}` shows them"
            granted = await ask(inquiry.question(MOST_SHOWN, where))
            if granted is None:
                status = await self._ask_operator(inquiry, which, end)
            else:
                ended = await self._rows("DELETE FROM approvals WHERE id = ? RETURNING status", which)
                # The operator may have answered what was asked in the client once more.
                is_denied = not granted or any(row["status"] == "denied" for row in ended)
                status = "denied" if is_denied else "approved"
        if status == "waiting":
            return (
                f"{inquiry.request.tool} needs a human's approval. {inquiry.reason} Nothing was done; "
                f"approval request {which} is waiting. Ask the user to run `mcp-toolserver approvals "
                f"approve {which}{self.flags}`. Once they have, make exactly the same call again: the "
                f"approval is for it, once, within {LIFETIME / 3600:g} h, while this server runs."
            )
        is_granted = status in ("approved", "session")
        inquiry.call.verdict = "asked-yes" if is_granted else "asked-no"
        return "" if is_granted else inquiry.refusal()

    async def all(self) -> tuple[Approval, ...]:
        """All that waits or is remembered, the oldest first."""
        names = ("id", "status", "pattern", "expires")
        return tuple(
            Approval(about=json.loads(row["about"]), **{name: row[name] for name in names})
            for row in await self._rows("SELECT * FROM approvals ORDER BY rowid")
        )

    async def settle(self, which: str, status: Status, pattern: str = "", expires: float = 0.0) -> None:
        """Answer a request that waits; also remember `pattern`, if there is one, until `expires`.

        Raises:
            NotFound: there is no such request.
        """
        answer = (
            "UPDATE approvals SET status = ?, expires = ? WHERE id = ? AND status = 'waiting' RETURNING *"
        )
        end = time.time() + (_SESSION_LIFETIME if status == "session" else LIFETIME)

        def work(database: Connection) -> None:
            self._remove_ended(database)
            if (row := database.execute(answer, (status, end, which)).fetchone()) is None:
                raise NotFound(
                    f"No request {which} waits: it was answered, has expired, is asked in the client, or its "
                    "server has ended."
                )
            if pattern:
                _insert(database, "pattern", "", row["mark"], "", "", row["about"], pattern, expires)

        await self.database.run(work, _TABLES)

    async def revoke(self, which: str) -> None:
        """Forget an answer. Raises: NotFound: there is none of this id."""
        statement = "DELETE FROM approvals WHERE id = ? AND status NOT IN ('asked', 'waiting') RETURNING id"
        if not await self._rows(statement, which):
            raise NotFound(f"There is no answer {which} to revoke; `approvals deny` answers what waits.")

    @contextmanager
    def watched(self) -> Generator[None]:
        """Let servers know that somebody sees new requests. Raises: OSError."""
        # Some platforms lack this module.
        import fcntl

        file = os.open(f"{self.database.path}.watch", OPEN_LOCK | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_SH)
            yield
        finally:
            os.close(file)

    async def _ask_operator(self, inquiry: Inquiry, which: str, end: float) -> Status | None:
        """The answer to a request, or that it waits; None if it has ended."""
        await self._rows("UPDATE approvals SET status = 'waiting' WHERE id = ? AND status = 'asked'", which)
        while True:
            status = await self.database.run(
                lambda database: _taken(database, which, inquiry.is_once), _TABLES
            )
            is_over = time.monotonic() > end or not is_locked(f"{self.database.path}.watch")
            if status != "waiting" or is_over:
                return status
            await anyio.sleep(POLL_SECONDS)

    def _open(self, database: Connection, inquiry: Inquiry) -> tuple[str, Status]:
        """The id and status of a request, which is added unless an answer is remembered."""
        server, owner = self.database.server.acquire(), digest(inquiry.owner)
        mark = digest(inquiry.mark, self.workspace, self.user)
        bound = digest(inquiry.digest, mark, server)
        self._remove_ended(database)
        known = database.execute("SELECT id FROM approvals WHERE digest = ?", (bound,)).fetchone()
        if known:
            return known["id"], _taken(database, known["id"], inquiry.is_once)
        patterns = database.execute(
            "SELECT pattern FROM approvals WHERE status = 'pattern' AND mark = ?", (mark,)
        )
        if any(inquiry.is_covered(row["pattern"]) for row in patterns):
            return "", "approved"
        _make_room(database, owner, server)
        about = {
            "client": inquiry.call.session,
            "workspace": self.workspace,
            "question": inquiry.question(MOST_STORED, "nothing stores them"),
            "tool": inquiry.request.tool,
        }
        values = (bound, mark, server, owner, json.dumps(about), "", time.time() + LIFETIME)
        return _insert(database, "asked", *values), "asked"

    async def _rows(self, statement: str, *values: object) -> list[Any]:
        """Run one statement, after what has ended is removed."""

        def work(database: Connection) -> list[Any]:
            self._remove_ended(database)
            return database.execute(statement, values).fetchall()

        return await self.database.run(work, _TABLES)

    def _remove_ended(self, database: Connection) -> None:
        others = database.execute("SELECT DISTINCT server FROM approvals WHERE server != ''").fetchall()
        for name in self.database.server.dead_of(others):
            database.execute("DELETE FROM approvals WHERE server = ?", (name,))
        database.execute("DELETE FROM approvals WHERE expires < ?", (time.time(),))


def _taken(database: Connection, which: str, is_once: bool) -> Any:
    """The status of a request; an answer for one call is used up, as any is that `is_once`. None if it has
    ended."""
    row = database.execute("SELECT status FROM approvals WHERE id = ?", (which,)).fetchone()
    if row and row["status"] in ("approved", "denied", *(("session",) if is_once else ())):
        database.execute("DELETE FROM approvals WHERE id = ?", (which,))
    return row and row["status"]


def _insert(database: Connection, *values: object) -> str:
    which = secrets.token_hex(4)
    database.execute("INSERT INTO approvals VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (which, *values))
    return which


def _make_room(database: Connection, owner: str, server: str) -> None:
    statement = (
        "DELETE FROM approvals WHERE id IN (SELECT id FROM approvals WHERE status IN ('asked', 'waiting') "
        "AND (? = '' OR (owner = ? AND server = ?)) ORDER BY rowid DESC LIMIT -1 OFFSET ?)"
    )
    for whose, most in ((server, _MOST_OF_ONE), ("", _MOST)):
        database.execute(statement, (whose, owner, whose, most - 1))
