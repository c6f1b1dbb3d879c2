"""A server in this process whose root holds skills, and calls of it."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.pipeline.call import Result
from tests.protocol.resource_clients import Place, place
from tests.support.workbench import Person


def skill(body: str = "Do it.", **fields: object) -> str:
    """The text of a skill file; names of fields may have `_` for `-`."""
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return "\n".join(("---", *lines, "---", body, ""))


RELEASE = ".agents/skills/release/SKILL.md"


@asynccontextmanager
async def skilled(
    folder: Path, files: Mapping[str, str] | None = None, **settings: Any
) -> AsyncGenerator[Place]:
    """A server on `folder/root`, which holds `files`."""
    settings = {"permission_mode": Permission.WORKSPACE_WRITE, **settings}
    async with place(folder, **settings) as made:
        for name, content in (files or {}).items():
            made.write(name, content)
        yield made


async def call(made: Place, tool: str, person: Person | None = None, /, **arguments: Any) -> Result:
    with anyio.fail_after(30):
        return await made.app.dispatcher.call(tool, arguments, person or Person())


async def load(made: Place, name: str, person: Person | None = None, /, **arguments: Any) -> str:
    result = await call(made, "Skill", person, skill=name, **arguments)
    assert result.error is None, result.text
    return result.text


async def listing(made: Place, person: Person | None = None, /) -> str:
    result = await call(made, "Skill", person)
    assert result.error is None, result.text
    return result.text
