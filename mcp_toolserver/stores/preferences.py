"""Preferences, kept for the workspace. Nothing in this server acts on them."""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from mcp_toolserver.capabilities.kept import Preference
from mcp_toolserver.stores.database import Database

if TYPE_CHECKING:
    import sqlite3

_TABLE = "CREATE TABLE IF NOT EXISTS preferences (key TEXT PRIMARY KEY, value TEXT NOT NULL)"


def _nobody() -> None:
    return


class StoredPreferences:
    """Implements `Preferences`. `changed` is called when one was put."""

    def __init__(
        self,
        database: Database,
        decided: Mapping[str, Preference],
        *,
        changed: Callable[[], None] = _nobody,
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

        return self._told(await self._database.run(work))

    def _told(self, before: Preference | None) -> Preference | None:
        self._changed()
        return before


def _read(database: "sqlite3.Connection") -> Mapping[str, Preference]:
    database.execute(_TABLE)
    return {key: json.loads(value) for key, value in database.execute("SELECT key, value FROM preferences")}
