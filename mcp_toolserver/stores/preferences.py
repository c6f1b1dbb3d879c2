"""Stores preferences per workspace and user. Nothing in this server acts on them."""

import json
from collections.abc import Callable, Mapping

from mcp_toolserver.capabilities.stored import Preference
from mcp_toolserver.stores.database import Connection, Database

_TABLES = (
    "CREATE TABLE IF NOT EXISTS preferences (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    # A separate table, so that servers of older versions can use the file.
    """CREATE TABLE IF NOT EXISTS user_preferences (
        user TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (user, key)
    )""",
)


class StoredPreferences:
    """The stored preferences of a workspace, and the settings of the operator (`decided`), which no call
    changes.

    Calls `changed` after each change. `user` is the name whose token the callers have; empty without named
    tokens.
    """

    def __init__(
        self,
        database: Database,
        decided: Mapping[str, Preference],
        *,
        user: str = "",
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._database = database
        self._user = user
        self._changed = changed
        self.decided = decided

    async def kept(self) -> Mapping[str, Preference]:
        """Return the stored preferences. Raises: Conflict, Unavailable: as for `OwnerTodos.change`."""
        return await self._database.run(self._read, _TABLES)

    async def put(self, key: str, value: Preference) -> Preference | None:
        """Store `value`; return the previous value.

        Raises: Conflict, Unavailable: as for `OwnerTodos.change`.
        """

        def work(database: Connection) -> Preference | None:
            before = self._read(database).get(key)
            if self._user:
                row = (self._user, key, json.dumps(value))
                database.execute("INSERT OR REPLACE INTO user_preferences VALUES (?, ?, ?)", row)
            else:
                database.execute("INSERT OR REPLACE INTO preferences VALUES (?, ?)", (key, json.dumps(value)))
            return before

        before = await self._database.run(work, _TABLES)
        self._changed()
        return before

    def _read(self, database: Connection) -> Mapping[str, Preference]:
        rows = (
            database.execute("SELECT key, value FROM user_preferences WHERE user = ?", (self._user,))
            if self._user
            else database.execute("SELECT key, value FROM preferences")
        )
        return {key: json.loads(value) for key, value in rows}
