"""Stores which worktrees the server made, per workspace. Only the owner can use one, by its handle."""

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mcp_toolserver.errors import InvalidInput, NotFound
from mcp_toolserver.stores.database import Database

if TYPE_CHECKING:
    import sqlite3

PREFIX = "worktree_"

MOST = 32
"""Worktrees of one workspace."""

_TABLES = (
    """CREATE TABLE IF NOT EXISTS worktrees (
    handle TEXT PRIMARY KEY, owner TEXT NOT NULL, common_dir TEXT NOT NULL, name TEXT NOT NULL,
    branch TEXT NOT NULL, base TEXT NOT NULL, git_dir TEXT NOT NULL, UNIQUE (common_dir, name)
)""",
)


def new_handle() -> str:
    """A handle of 128 random bits."""
    return PREFIX + secrets.token_hex(16)


@dataclass(frozen=True)
class StoredWorktree:
    """A worktree that the server made."""

    handle: str
    owner: str
    common_dir: str
    """The `.git` folder of its repository, absolute."""
    name: str
    branch: str
    base: str
    """The id of the commit that its branch started from."""
    git_dir: str
    """Its own folder in `common_dir`."""


class StoredWorktrees:
    """The worktrees of all owners."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, handle: str, owner: str) -> StoredWorktree:
        """Return a worktree of `owner`. Raises: NotFound."""

        def work(database: "sqlite3.Connection") -> StoredWorktree | None:
            return _one(
                database.execute("SELECT * FROM worktrees WHERE handle = ? AND owner = ?", (handle, owner))
            )

        if (found := await self._database.run(work, _TABLES)) is None:
            raise NotFound(
                "There is no such worktree. Use the id that EnterWorktree returned; it ends when the "
                "worktree is removed."
            )
        return found

    async def named(self, common_dir: str, name: str) -> StoredWorktree | None:
        """Return the worktree of a repository with this name, whoever owns it."""

        def work(database: "sqlite3.Connection") -> StoredWorktree | None:
            return _one(
                database.execute(
                    "SELECT * FROM worktrees WHERE common_dir = ? AND name = ?", (common_dir, name)
                )
            )

        return await self._database.run(work, _TABLES)

    async def check_room(self) -> None:
        """Raises: InvalidInput: there are too many worktrees."""

        def work(database: "sqlite3.Connection") -> list[str]:
            return [name for (name,) in database.execute("SELECT name FROM worktrees ORDER BY rowid")]

        if len(names := await self._database.run(work, _TABLES)) >= MOST:
            raise InvalidInput(
                f"There are {len(names)} worktrees already, as many as there may be: {', '.join(names)}. "
                "Remove one with ExitWorktree, `action` remove."
            )

    async def add(self, made: StoredWorktree) -> None:
        """Store a new worktree."""

        values = (made.handle, made.owner, made.common_dir, made.name, made.branch, made.base, made.git_dir)

        def work(database: "sqlite3.Connection") -> None:
            database.execute("INSERT OR REPLACE INTO worktrees VALUES (?, ?, ?, ?, ?, ?, ?)", values)

        await self._database.run(work, _TABLES)

    async def remove(self, handle: str) -> None:
        """Forget a worktree."""

        def work(database: "sqlite3.Connection") -> None:
            database.execute("DELETE FROM worktrees WHERE handle = ?", (handle,))

        await self._database.run(work, _TABLES)


def _one(found: "sqlite3.Cursor") -> StoredWorktree | None:
    row = found.fetchone()
    return None if row is None else StoredWorktree(*row)
