"""Stores which worktrees the server made, per workspace. Only the owner can use one, by its handle."""

import secrets
from dataclasses import astuple, dataclass

from mcp_toolserver.errors import InvalidInput, NotFound
from mcp_toolserver.stores.database import Database

PREFIX = "worktree_"

MOST = 32
"""Worktrees of one workspace."""

MOST_REMOVED = 1_000
"""Removed worktrees that stay known: many more than agents."""

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
    """Its own folder in `common_dir`; empty for one that was removed."""


class StoredWorktrees:
    """The worktrees of all owners."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, handle: str, owner: str) -> StoredWorktree:
        """Return a worktree of `owner`. Raises: NotFound."""
        found = await self._rows(
            "SELECT * FROM worktrees WHERE handle = ? AND owner = ? AND git_dir != ''", handle, owner
        )
        if not found:
            raise NotFound(
                "There is no such worktree. Use the id that EnterWorktree returned; it ends when the "
                "worktree is removed."
            )
        return StoredWorktree(*found[0])

    async def named(self, common_dir: str, name: str) -> StoredWorktree | None:
        """Return the worktree of a repository with this name, whoever owns it."""
        found = await self._rows(
            "SELECT * FROM worktrees WHERE common_dir = ? AND name = ? AND git_dir != ''", common_dir, name
        )
        return StoredWorktree(*found[0]) if found else None

    async def check_room(self) -> None:
        """Raises: InvalidInput: there are too many worktrees."""
        names = [
            row[0]
            for row in await self._rows("SELECT name FROM worktrees WHERE git_dir != '' ORDER BY rowid")
        ]
        if len(names) >= MOST:
            raise InvalidInput(
                f"There are {len(names)} worktrees already, as many as there may be: {', '.join(names)}. "
                "Remove one with ExitWorktree, `action` remove."
            )

    async def add(self, made: StoredWorktree) -> None:
        """Store a new worktree."""
        await self._rows("INSERT OR REPLACE INTO worktrees VALUES (?, ?, ?, ?, ?, ?, ?)", *astuple(made))

    async def remove(self, handle: str) -> None:
        """Remove a worktree. It stays known that its agent works in one."""
        await self._rows("UPDATE worktrees SET git_dir = '' WHERE handle = ?", handle)
        await self._rows(
            "DELETE FROM worktrees WHERE git_dir = '' AND rowid NOT IN "
            "(SELECT rowid FROM worktrees WHERE git_dir = '' ORDER BY rowid DESC LIMIT ?)",
            MOST_REMOVED,
        )

    async def of_agent(self, agent: str, owner: str) -> StoredWorktree | None:
        """Return the worktree of an agent that `owner` started, or the one that it had."""
        found = await self._rows(
            "SELECT * FROM worktrees WHERE name = ? AND owner = ? ORDER BY rowid DESC", agent, owner
        )
        return StoredWorktree(*found[0]) if found else None

    async def _rows(self, statement: str, *values: str | int) -> list[tuple[str, ...]]:
        return await self._database.rows(statement, values, _TABLES)
