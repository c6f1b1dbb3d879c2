"""Lists of things to do, kept for the workspace. Whoever has the handle of a list has the list."""

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from mcp_toolserver.capabilities.kept import Todo, TodoChange, TodoList
from mcp_toolserver.errors import NotFound
from mcp_toolserver.stores.database import Database

if TYPE_CHECKING:
    import sqlite3

PREFIX = "todos_"

KEPT = 1_000
"""Lists; beyond, the one that was used longest ago is forgotten."""

_TABLES = (
    """CREATE TABLE IF NOT EXISTS todo_lists (
        handle TEXT PRIMARY KEY, next_id INTEGER NOT NULL, used INTEGER NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS todos (
        list TEXT NOT NULL REFERENCES todo_lists ON DELETE CASCADE, position INTEGER NOT NULL,
        id INTEGER NOT NULL, content TEXT NOT NULL, active_form TEXT NOT NULL, status TEXT NOT NULL,
        priority TEXT NOT NULL, PRIMARY KEY (list, position)
    )""",
)


def _nobody(_: str) -> None:
    return


class StoredTodos:
    """Implements `Todos`. `changed` is told the handle of every list that was made or changed."""

    def __init__(
        self, database: Database, *, kept: int = KEPT, changed: Callable[[str], None] = _nobody
    ) -> None:
        self._database = database
        self._kept = kept
        self._changed = changed

    async def change(self, handle: str, change: Callable[[TodoList], TodoList]) -> TodoChange:
        """See `Todos.change`."""

        def work(database: "sqlite3.Connection") -> TodoChange:
            for table in _TABLES:
                database.execute(table)
            before = _read(database, handle) if handle else TodoList()
            after = change(before)
            changed = TodoChange(handle=handle or PREFIX + secrets.token_hex(16), before=before, after=after)
            _write(database, changed)
            _forget(database, self._kept)
            return changed

        return self._told(await self._database.run(work))

    def _told(self, change: TodoChange) -> TodoChange:
        if change.after != change.before:
            self._changed(change.handle)
        return change


def _read(database: "sqlite3.Connection", handle: str) -> TodoList:
    found = database.execute("SELECT next_id FROM todo_lists WHERE handle = ?", (handle,)).fetchone()
    if found is None:
        raise NotFound(
            "There is no such todo list. Use the list_id that an earlier call returned, or send todos "
            "without one to start a new list."
        )
    rows = database.execute(
        "SELECT id, content, active_form, status, priority FROM todos WHERE list = ? ORDER BY position",
        (handle,),
    )
    todos = tuple(
        Todo(id=number, content=content, active_form=active, status=status, priority=priority)
        for number, content, active, status, priority in rows
    )
    return TodoList(todos=todos, next_id=found[0])


def _write(database: "sqlite3.Connection", changed: TodoChange) -> None:
    database.execute(
        "INSERT INTO todo_lists VALUES (?1, ?2, (SELECT coalesce(max(used), 0) + 1 FROM todo_lists)) "
        "ON CONFLICT (handle) DO UPDATE SET next_id = excluded.next_id, used = excluded.used",
        (changed.handle, changed.after.next_id),
    )
    if changed.after.todos == changed.before.todos:
        return
    database.execute("DELETE FROM todos WHERE list = ?", (changed.handle,))
    rows = (
        (changed.handle, position, todo.id, todo.content, todo.active_form, todo.status, todo.priority)
        for position, todo in enumerate(changed.after.todos)
    )
    database.executemany("INSERT INTO todos VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


def _forget(database: "sqlite3.Connection", kept: int) -> None:
    database.execute(
        "DELETE FROM todo_lists WHERE handle IN "
        "(SELECT handle FROM todo_lists ORDER BY used DESC LIMIT -1 OFFSET ?)",
        (kept,),
    )
