"""Stores todo lists and preferences per workspace. Only the owner can use a list, by its handle; preferences
belong to a user, and agents follow them.
"""

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.capabilities.stored import Todo, TodoChange, TodoList
from mcp_toolserver.errors import NotFound
from mcp_toolserver.stores.database import Connection, Database
from mcp_toolserver.tools.plan.config import is_preference

PREFIX = "todos_"

KEPT = 1_000
"""Largest number of lists; beyond it, the least recently used one is removed."""

_TABLES = (
    """CREATE TABLE IF NOT EXISTS todo_lists (
        handle TEXT PRIMARY KEY, next_id INTEGER NOT NULL, used INTEGER NOT NULL
    )""",
    # A separate table, so that servers of older versions can use the file. Their lists have no owner here.
    """CREATE TABLE IF NOT EXISTS todo_owners (
        list TEXT PRIMARY KEY REFERENCES todo_lists ON DELETE CASCADE, owner TEXT NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS todos (
        list TEXT NOT NULL REFERENCES todo_lists ON DELETE CASCADE, position INTEGER NOT NULL,
        id INTEGER NOT NULL, content TEXT NOT NULL, active_form TEXT NOT NULL, status TEXT NOT NULL,
        priority TEXT NOT NULL, PRIMARY KEY (list, position)
    )""",
)


@dataclass(frozen=True)
class StoredTodos:
    """The lists of all owners."""

    database: Database
    kept: int = KEPT
    changed: Callable[[str], None] = lambda _: None
    """Is called with the handle of each new or changed list."""
    current: dict[str, str] = field(default_factory=dict[str, str])
    """The list of each owner that a call without a handle means: the last that was made or changed."""

    def forget(self, owner: str) -> None:
        """Forget the current list of `owner`, who will not return."""
        self.current.pop(owner, None)


@dataclass(frozen=True)
class OwnerTodos:
    """Todo lists by handle; they outlive the server."""

    stored: StoredTodos
    owner: str

    async def change(self, handle: str, change: Callable[[TodoList], TodoList]) -> TodoChange:
        """Replace a list by the result of `change`, one change at a time.

        An empty handle means the list that the caller changed last, or a new one.

        Raises:
            NotFound: the caller has no such list.
            Conflict: another server has been changing this state for seconds.
            Unavailable: the state cannot be read or written, or was damaged.
        """
        stored, owner = self.stored, self.owner
        current = stored.current.get(owner, "")

        def work(database: Connection) -> TodoChange:
            name = handle or (current if _exists(database, current) else "")
            before = _read(database, name, owner) if name else TodoList()
            after = change(before)
            changed = TodoChange(handle=name or PREFIX + secrets.token_hex(16), before=before, after=after)
            _write(database, changed, owner)
            database.execute(
                "DELETE FROM todo_lists WHERE handle IN "
                "(SELECT handle FROM todo_lists ORDER BY used DESC LIMIT -1 OFFSET ?)",
                (stored.kept,),
            )
            return changed

        changed = await stored.database.run(work, _TABLES)
        is_new = changed.after != changed.before
        if not handle or is_new:
            stored.current[owner] = changed.handle
        if is_new:
            stored.changed(changed.handle)
        return changed


def _exists(database: Connection, handle: str) -> bool:
    return database.execute("SELECT 1 FROM todo_lists WHERE handle = ?", (handle,)).fetchone() is not None


def _read(database: Connection, handle: str, owner: str) -> TodoList:
    found = database.execute(
        "SELECT next_id FROM todo_lists LEFT JOIN todo_owners ON list = handle "
        "WHERE handle = ? AND coalesce(owner, ?) = ?",
        (handle, LOCAL, owner),
    ).fetchone()
    if found is None:
        raise NotFound(
            "There is no such todo list. Use the list_id that an earlier call returned, or leave it out to "
            "use the list of this session."
        )
    rows = database.execute(
        "SELECT id, content, active_form, status, priority FROM todos WHERE list = ? ORDER BY position",
        (handle,),
    )
    return TodoList(todos=tuple(Todo(**row) for row in rows), next_id=found["next_id"])


def _write(database: Connection, changed: TodoChange, owner: str) -> None:
    database.execute(
        "INSERT INTO todo_lists VALUES (?1, ?2, (SELECT coalesce(max(used), 0) + 1 FROM todo_lists)) "
        "ON CONFLICT (handle) DO UPDATE SET next_id = excluded.next_id, used = excluded.used",
        (changed.handle, changed.after.next_id),
    )
    database.execute("INSERT OR IGNORE INTO todo_owners VALUES (?, ?)", (changed.handle, owner))
    if changed.after.todos == changed.before.todos:
        return
    database.execute("DELETE FROM todos WHERE list = ?", (changed.handle,))
    rows = (
        (changed.handle, position, todo.id, todo.content, todo.active_form, todo.status, todo.priority)
        for position, todo in enumerate(changed.after.todos)
    )
    database.executemany("INSERT INTO todos VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


_PREFERENCE_TABLES = (
    "CREATE TABLE IF NOT EXISTS preferences (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    # A separate table, so that servers of older versions can use the file.
    """CREATE TABLE IF NOT EXISTS user_preferences (
        user TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (user, key)
    )""",
)


@dataclass(frozen=True)
class StoredPreferences:
    """The stored preferences of a workspace. Every coroutine raises as `OwnerTodos.change` does."""

    database: Database
    decided: Mapping[str, str]
    """The settings of the operator, which no call changes."""
    user: str = ""
    """The name whose token the callers have; empty without named tokens."""
    changed: Callable[[], None] = lambda: None
    """Is called after each change."""

    async def kept(self) -> Mapping[str, str]:
        """Return the stored preferences. Raises: Conflict, Unavailable: as for `OwnerTodos.change`."""
        return await self.database.run(self._read, _PREFERENCE_TABLES)

    async def put(self, key: str, value: str | None) -> str | None:
        """Store `value`, or none; return the previous value.

        Raises:
            Conflict, Unavailable: as for `OwnerTodos.change`.
        """

        def work(database: Connection) -> str | None:
            before = self._read(database).get(key)
            if self.user:
                row = (self.user, key, json.dumps(value))
                database.execute("INSERT OR REPLACE INTO user_preferences VALUES (?, ?, ?)", row)
            else:
                database.execute("INSERT OR REPLACE INTO preferences VALUES (?, ?)", (key, json.dumps(value)))
            return before

        before = await self.database.run(work, _PREFERENCE_TABLES)
        self.changed()
        return before

    def _read(self, database: Connection) -> Mapping[str, str]:
        rows = (
            database.execute("SELECT key, value FROM user_preferences WHERE user = ?", (self.user,))
            if self.user
            else database.execute("SELECT key, value FROM preferences")
        )
        kept = {key: json.loads(value) for key, value in rows}
        # Older versions stored others.
        return {key: value for key, value in kept.items() if is_preference(key, value)}
