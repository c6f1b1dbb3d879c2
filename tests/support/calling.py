"""Calls of one tool through the dispatcher, on a real folder."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.pipeline.registry import Entry
from mcp_toolserver.tool_spec import ToolSpec
from tests.support.workbench import Person, dispatcher, machine

HANDLE = re.compile(r"(?<=restore \")[0-9a-f]{12}")
"""The id in an answer by which the replaced content is restored."""


def handle(answer: str) -> str:
    """The id that an answer names to restore."""
    return HANDLE.findall(answer)[0]


def shown_path(answer: str) -> str:
    """The path that an answer names for the content before."""
    return re.findall(r"(?<=previous content: path )\S+", answer)[0]


@dataclass(frozen=True, kw_only=True)
class Bench:
    tool: ToolSpec
    root: Path
    hides: Callable[[tuple[str, ...]], bool] | None = None
    ceiling: Permission = Permission.WORKSPACE_WRITE
    deny: Iterable[str] = ()
    works_in: list[str] | None = field(default=None)

    async def result(self, name: str | None = None, /, **arguments: Any) -> Result:
        """The whole result of a call, by any name of the tool."""
        server = dispatcher(
            machine(self.root.parent, hides=self.hides),
            Entry(self.tool, toolset="tests"),
            ceiling=self.ceiling,
            deny=self.deny,
        )
        with anyio.fail_after(30):
            return await server.call(name or self.tool.name, arguments, Person(works_in=self.works_in))

    async def text(self, /, **arguments: Any) -> str:
        result = await self.result(**arguments)
        assert result.error is None, result.text
        return result.text

    async def refusal(self, kind: str, /, **arguments: Any) -> str:
        """The text of a call that must fail like this."""
        result = await self.result(**arguments)
        assert result.error == kind, result.text
        return result.text


def make(root: Path, files: dict[str, bytes]) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def held(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }
