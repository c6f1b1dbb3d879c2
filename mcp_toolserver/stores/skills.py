"""Stores the skills that models save, per workspace and user.

They are kept here and not as files in the roots, because a skill is an instruction that lasts, and files of
that kind are protected from tools.
"""

import json
from typing import Any

from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.capabilities.skills import SavedSkill
from mcp_toolserver.errors import Conflict
from mcp_toolserver.stores.database import Connection, Database

KEPT = 100
"""Largest number of skills of a user. None is removed to make room."""

_TABLES = (
    """CREATE TABLE IF NOT EXISTS saved_skills (
    user TEXT NOT NULL, name TEXT NOT NULL, description TEXT NOT NULL, when_to_use TEXT NOT NULL,
    aliases TEXT NOT NULL, user_invocable INTEGER NOT NULL, prompt TEXT NOT NULL, PRIMARY KEY (user, name)
)""",
)


class StoredSkills:
    """The skills of all users; `user` is the name of a token, or empty without named tokens.

    Every coroutine raises Conflict and Unavailable as `Database.run` does.
    """

    def __init__(self, database: Database, *, kept: int = KEPT) -> None:
        self._database = database
        self._kept = kept

    async def all(self, user: str) -> tuple[SavedSkill, ...]:
        """Return the skills of `user` by name. Raises: Conflict, Unavailable: as for `OwnerTodos.change`."""
        rows = await self._database.rows(
            "SELECT name, description, when_to_use, aliases, user_invocable, prompt FROM saved_skills "
            "WHERE user = ? ORDER BY name",
            (user or LOCAL,),
            _TABLES,
        )
        return tuple(map(_skill, rows))

    async def put(self, user: str, skill: SavedSkill) -> bool:
        """Save or replace a skill; return whether it is new.

        Raises:
            Conflict: too many are saved, or as for `OwnerTodos.change`.
            Unavailable: as for `OwnerTodos.change`.
        """
        owner = user or LOCAL

        def work(database: Connection) -> bool:
            names = {
                name for (name,) in database.execute("SELECT name FROM saved_skills WHERE user = ?", (owner,))
            }
            if skill.name not in names and len(names) >= self._kept:
                raise Conflict(
                    f"{len(names)} skills are saved, and no more can be. Replace one: save under its name."
                )
            values = (skill.name, skill.description, skill.when_to_use, json.dumps(skill.aliases))
            database.execute(
                "INSERT OR REPLACE INTO saved_skills VALUES (?, ?, ?, ?, ?, ?, ?)",
                (owner, *values, skill.user_invocable, skill.prompt),
            )
            return skill.name not in names

        return await self._database.run(work, _TABLES)


def _skill(row: Any) -> SavedSkill:
    aliases, user_invocable = tuple(json.loads(row["aliases"])), bool(row["user_invocable"])
    values: dict[str, Any] = {**row, "aliases": aliases, "user_invocable": user_invocable}
    return SavedSkill(**values)
