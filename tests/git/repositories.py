"""The git tools on real repositories, through a real broker."""

import json
import os
import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
from pydantic import JsonValue

from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.pipeline.registry import discover
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.git.commit import GitWriter
from mcp_toolserver.runtime.git.git import GitReader
from mcp_toolserver.runtime.git.hardening import helper
from mcp_toolserver.runtime.git.repository import RepositoryAccess
from mcp_toolserver.runtime.git.runner import Git
from mcp_toolserver.runtime.host_services import ServiceRequest
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.helper_launcher import Programs
from mcp_toolserver.text.search.glob import matcher
from tests.git.hostile_git import GIT, Lair
from tests.support.processes import FULL, broker
from tests.support.workbench import Person, dispatcher, machine, required, with_services

AUTHOR = "n <n@example.org>"
"""The one of all other commits, too."""

GIT_TOOLS = tuple(entry for entry in discover() if entry.toolset == "git")


@contextmanager
def git_broker(home: Path) -> Generator[Broker]:
    """A broker that starts git and nothing else, with its configuration in `home`."""
    with broker(FULL, helper(GIT), environ={**os.environ, "HOME": str(home)}) as started:
        yield started


@dataclass(frozen=True, kw_only=True)
class RepositoryTools:
    """Tools, and a repository that they work in."""

    lair: Lair
    at: Dispatcher

    async def ask(self, tool: str, person: Person | None = None, /, **arguments: JsonValue) -> Result:
        """One call."""
        with anyio.fail_after(60):
            return await self.at.call(tool, arguments, person or Person())

    async def text(self, tool: str, person: Person | None = None, /, **arguments: JsonValue) -> str:
        """The text of one call, which must succeed."""
        result = await self.ask(tool, person, **arguments)
        assert result.error is None, result.text
        return result.text

    async def refused(
        self, kind: str, tool: str, person: Person | None = None, /, **arguments: JsonValue
    ) -> str:
        """The text of one call, which must fail like this."""
        result = await self.ask(tool, person, **arguments)
        assert result.error == kind, result.text
        return result.text


@dataclass(frozen=True, kw_only=True)
class GitTools(RepositoryTools):
    """The git tools, the folder they work in, and its repository."""

    started: Broker

    def like(self, **options: Any) -> "GitTools":
        """Tools of another server on the same repository; see `git_tools`."""
        return git_tools(self.lair, self.started, **options)

    def state(self) -> tuple[object, ...]:
        """Everything that a refused call leaves as it is."""
        root = self.lair.repository
        files = (path for path in root.rglob("*") if path.is_file() and ".git" not in path.parts)
        return (
            self.lair.git("for-each-ref"),
            self.lair.naive("status", "--porcelain=v2", "--branch").stdout,
            {path: path.read_bytes() for path in files},
        )

    async def unchanged(self, kind: str, tool: str, /, **arguments: Any) -> str:
        """The text of one call, which must fail like this, change nothing, and run nothing."""
        before = self.state()
        text = await self.refused(kind, tool, **arguments)
        assert self.state() == before
        assert not self.lair.ran()
        return text

    async def refuses(self, tool: str, kinds: Mapping[str, Iterable[Any]], **usual: JsonValue) -> None:
        """Each of these arguments, added to the usual ones, fails as it must: `kinds` names the errors."""
        wrong = [
            (arguments, found.error, found.text)
            for kind, table in kinds.items()
            for arguments in table
            if (found := await self.ask(tool, **{**usual, **arguments})).error != kind
        ]
        assert wrong == []

    async def data(self, tool: str, **arguments: JsonValue) -> dict[str, Any]:
        """The structured result of one call, which must succeed; it fits the schema and is plain JSON."""
        result = await self.ask(tool, **arguments)
        assert result.error is None, result.text
        assert result.data is not None
        return json.loads(json.dumps(result.data))


def git_tools(
    lair: Lair,
    started: Broker,
    *,
    roots: Sequence[Path] = (),
    hides: Sequence[str] = (),
    raw: bool = False,
    **changing: Any,
) -> GitTools:
    """The tools on `roots`, which are the repository unless given; `hides` are patterns of hidden paths, and
    `changing` an author, the protected paths of a workspace, or rules."""
    patterns = [matcher(pattern) for pattern in hides]
    workspace = Workspace(
        [str(root) for root in roots or (lair.repository,)],
        hides=lambda spellings: any(hidden(one) for hidden in patterns for one in spellings),
        protects=changing.pop("protects", lambda _: None),
    )
    git = Git(Programs(started), GIT, str(lair.folder / "home"))
    author = changing.pop("author", AUTHOR)

    def access(request: ServiceRequest) -> RepositoryAccess:
        return RepositoryAccess(git=git, workspace=request.workspace, may_hide=bool(patterns))

    def writer(request: ServiceRequest) -> GitWriter:
        return GitWriter(repositories=access(request), scope=request.scope, author=author)

    needs = required(Capability.GIT, Capability.GIT_WRITE, Capability.FS_WRITE)
    provide = {
        Capability.GIT: lambda request: GitReader(access=access(request), scope=request.scope),
        Capability.GIT_WRITE: writer,
    }
    host = replace(with_services(machine(lair.folder), needs, provide), view=lambda: workspace)
    made = dispatcher(host, *GIT_TOOLS, **changing)
    return GitTools(lair=lair, started=started, at=replace(made, raw=raw))


def without_ids(text: str) -> str:
    """`text` with commit ids as `<id>` and times as `<time>`."""
    text = re.sub(r"\b[0-9a-f]{12}([0-9a-f]{28})?\b", "<id>", text)
    return re.sub(r"\d{4}-\d\d-\d\dT[0-9:+-]+", "<time>", text)
