"""Stores preferences per workspace. Nothing in this server acts on them."""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from mcp_toolserver.capabilities.stored import Preference
from mcp_toolserver.stores.database import Database

if TYPE_CHECKING:
    import sqlite3

_TABLE = "CREATE TABLE IF NOT EXISTS preferences (key TEXT PRIMARY KEY, value TEXT NOT NULL)"


class StoredPreferences:
    """Implements `Preferences`; calls `changed` after each change."""

    def __init__(
        self,
        database: Database,
        decided: Mapping[str, Preference],
        *,
        changed: Callable[[], None] | None = None,
    ) -> None:
        self._database = database
        self._changed = changed
        self.decided = decided

    async def kept(self) -> Mapping[str, Preference]:
        """See `Preferences.kept`."""
        return await self._database.run(_read)

    async def put(self, key: str, value: Preference) -> Preference | None:
        """See `Preferences.put`."""

        def work(database: "sqlite3.Connection") -> Preference | None:
            before = _read(database).get(key)
            database.execute("INSERT OR REPLACE INTO preferences VALUES (?, ?)", (key, json.dumps(value)))
            return before

        before = await self._database.run(work)
        if self._changed is not None:
            self._changed()
        return before


def _read(database: "sqlite3.Connection") -> Mapping[str, Preference]:
    database.execute(_TABLE)
    return {key: json.loads(value) for key, value in database.execute("SELECT key, value FROM preferences")}
