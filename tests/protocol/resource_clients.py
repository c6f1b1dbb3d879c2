"""A whole server in the test's own process, and the official client connected to it in memory."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import mcp_types as mcp
from mcp import Client
from mcp.shared.exceptions import MCPError

from mcp_toolserver.app.compose import Application, build_application
from mcp_toolserver.app.serve import resource_feature
from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.mcp_server import ToolServer
from mcp_toolserver.protocol.resources.feature import ResourceFeature
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.settings import Settings
from tests.search.searching import RIPGREP
from tests.support.live import text
from tests.support.processes import broker

ERAS = ("legacy", "auto")


@dataclass
class Place:
    """A folder to serve, and the server on it."""

    folder: Path
    app: Application
    extra: dict[str, Any] = field(default_factory=dict[str, Any])
    """What `ResourceFeature` is given in addition."""

    @property
    def root(self) -> Path:
        return self.folder / "root"

    def write(self, name: str, content: str | bytes) -> str:
        """Make a file; its address."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return f"file://{path}"

    @cached_property
    def handlers(self) -> Handlers:
        target, changes = self.app.dispatcher, self.app.changes
        return Handlers(dispatcher=target, ask_seconds=5, changes=changes, structured=True)

    @cached_property
    def feature(self) -> ResourceFeature:
        return replace(resource_feature(self.app, self.handlers), **self.extra)

    @cached_property
    def server(self) -> ToolServer:
        return ToolServer(self.handlers, "", (self.feature.join,))

    @asynccontextmanager
    async def client(self, era: str = "legacy", **options: Any) -> AsyncGenerator[Client]:
        """A client of the server."""
        async with Client(self.server, **{"mode": era, "read_timeout_seconds": 20, **options}) as client:
            yield client


@asynccontextmanager
async def place(
    folder: Path,
    *,
    found: HostExecutables | None = None,
    at: Broker | None = None,
    extra: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncGenerator[Place]:
    """A server on `folder/root`. Without a broker it starts nothing."""
    (folder / "root").mkdir(exist_ok=True)
    given = {"permission_mode": Permission.DANGER_FULL_ACCESS, "toolsets": ("all",), **settings}
    chosen = Settings(root=(str(folder / "root"),), state_dir=str(folder / "state"), **given)
    app = build_application(chosen, at, found or HostExecutables(ripgrep=RIPGREP), held_by=0)
    try:
        yield Place(folder=folder, app=app, extra=extra or {})
    finally:
        await app.aclose()


@asynccontextmanager
async def commanding(folder: Path, **settings: Any) -> AsyncGenerator[Place]:
    """A server that runs commands."""
    with broker() as started:
        async with place(folder, at=started, **settings) as made:
            yield made


async def background(client: Client, command: str) -> str:
    """Start a command in the background; its id."""
    said = text(await client.call_tool("bash", {"command": command, "run_in_background": True}))
    return next(word.strip(",;.]") for word in said.split() if word.startswith("bg_"))


async def listed(client: Client) -> list[str]:
    """The addresses on the first page."""
    return [one.uri for one in (await client.list_resources(cache_mode="bypass")).resources]


async def read(client: Client, uri: str) -> str:
    """A resource as text."""
    content = (await client.read_resource(uri, cache_mode="bypass")).contents[0]
    assert isinstance(content, mcp.TextResourceContents)
    return content.text


async def refusal(client: Client, uri: str) -> MCPError:
    """How reading is refused."""
    try:
        await client.read_resource(uri, cache_mode="bypass")
    except MCPError as error:
        return error
    raise AssertionError(f"{uri} was read")


async def completed(client: Client, ref: str, value: str, argument: str = "path") -> Sequence[str]:
    """Proposals for an argument of a template, or of a prompt."""
    reference = mcp.ResourceTemplateReference(uri=ref) if "{" in ref else mcp.PromptReference(name=ref)
    return (await client.complete(reference, {"name": argument, "value": value})).completion.values
