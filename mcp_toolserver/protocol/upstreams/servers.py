"""The upstream servers of an application: their tools as tools of this server, and what calls get of them.

The SDK's client is imported with the first connection, because clients wait for the start.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

import anyio
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.errors import ToolError
from mcp_toolserver.gateway.definitions import (
    MOST_TOOLS,
    Definition,
    Definitions,
    Reach,
    named,
    plain,
    presented,
)
from mcp_toolserver.gateway.upstream_file import Upstream
from mcp_toolserver.pipeline.registry import Entry
from mcp_toolserver.policy.rules import FOREIGN
from mcp_toolserver.runtime.background import Background
from mcp_toolserver.runtime.host_services import ServiceRequest
from mcp_toolserver.text.json_values import texts_in
from mcp_toolserver.tool_spec import Args, Limits, Output, Profile, Runtime, ToolSpec

if TYPE_CHECKING:
    from mcp import Client

    from mcp_toolserver.protocol.upstreams.calls import CallUpstreams
    from mcp_toolserver.protocol.upstreams.connection import Connection, Open
    from mcp_toolserver.protocol.upstreams.oauth import Authorization

MOST_LISTED = 30
"""With more tools of upstream servers, those that the operator names are listed; ToolSearch finds all."""

_LONGEST_NAME = 128
_LONGEST_DESCRIPTION = 2_048
_LOOK_SECONDS = 10.0
_PROMPTS_SECONDS = 5.0
_MOST_PAGES = 100
_MOST_CONNECTIONS = 4
"""To one server: each set of roots has its own."""


class ForeignArgs(Args):
    """Arguments of a tool that only its own server understands."""

    model_config = ConfigDict(extra="allow")


@dataclass(kw_only=True, eq=False)
class Server:
    """An upstream server, and how to reach it."""

    upstream: Upstream
    definitions: Definitions
    roots: Callable[[Sequence[str] | None], tuple[str, ...]]
    """Its folders for a call that may use these; None: all that its clients may use."""
    open: Callable[[tuple[str, ...]], Open]
    """Opens a transport to it, started with these folders."""
    listed: list[JsonValue] = field(default_factory=list[JsonValue])
    """The definitions of tools that it listed last, perhaps to an earlier process."""
    prompts: list[JsonValue] = field(default_factory=list[JsonValue])
    """Those of prompts."""
    has_resources: bool = True
    """Whether it said so, if it was ever connected."""
    auth: Authorization | None = None
    connections: dict[tuple[str, ...], Connection] = field(
        default_factory=dict[tuple[str, ...], "Connection"]
    )

    @property
    def is_unknown(self) -> bool:
        """Whether it has to be asked for its tools: the first time, or because they have changed."""
        every = self.connections.values()
        is_known = self.listed or self.prompts or any(one.is_busy for one in every)
        return any(one.is_stale for one in every) or not is_known

    @property
    def state(self) -> str:
        """See `Connection.state`."""
        states = [one.state for one in self.connections.values()] or ["not connected"]
        return "connected" if "connected" in states else states[-1]


class UpstreamServers:
    """All upstream servers. Their tools are in `entries`: by server as in the operator's file, then by name.

    Implements `Foreign`.
    """

    def __init__(
        self,
        servers: Sequence[Server],
        background: Background,
        *,
        named_tools: frozenset[str],
        excluded: frozenset[str],
        most_listed: int,
    ) -> None:
        self.servers = {one.upstream.name: one for one in servers}
        self.background = background
        self._named, self._excluded, self._most_listed = named_tools, excluded, most_listed
        self.changed: Callable[[], object] = lambda: None
        """Called when the list of tools, or of prompts, has changed."""
        self.on_news: Callable[[str, str], object] = lambda _, __: None
        """Called with a server and the address of a resource that has changed; empty for the list of them."""
        self.highest = max((one.upstream.highest_level for one in servers), default=Permission.READ_ONLY)
        self.entries: Mapping[str, Entry] = {}
        self.unlisted: frozenset[str] = frozenset()
        for name in ("client", "mcp.client"):
            # The SDK logs what servers send, which may be anything and endless.
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._update()

    async def look(self, *, again: bool = False) -> None:
        """Connect to the servers whose tools are not known yet, or `again` to all, if they answer soon."""
        if any(one.definitions.is_waiting for one in self.servers.values()):
            # The operator may have approved something since.
            self._update()
        missing = [one for one in self.servers.values() if again or one.is_unknown]
        if not missing:
            return
        with anyio.move_on_after(_LOOK_SECONDS):
            async with anyio.create_task_group() as tasks:
                for server in missing:
                    tasks.start_soon(self._try, server)

    async def require(self) -> None:
        """Connect to what this server does not start without. Raises: Unavailable."""
        for server in self.servers.values():
            if server.upstream.required:
                await self.connection(server, server.roots(None)).client()

    def why_missing(self, name: str) -> str:
        """Why no tool is called `name`, as far as a server is the reason."""
        called = name.removeprefix(FOREIGN).partition("__")[0]
        server = self.servers.get(called)
        if server is None:
            return f"There is no server of that name; there are {', '.join(self.servers)}."
        if server.listed:
            is_meant = (tool for tool in server.definitions.known if own_name(called, tool, ()) == name)
            tool = next(is_meant, None)
            if tool is None:
                return f"{called} has no such tool."
            return server.definitions.why_off(tool) or f"The operator does not offer this tool of {called}."
        return f"The tools of {called} are not known ({server.state})."

    def provide(self, request: ServiceRequest) -> CallUpstreams:
        """What a call gets of the servers."""
        from mcp_toolserver.protocol.upstreams.calls import CallUpstreams

        return CallUpstreams(self, request)

    def connection(self, server: Server, roots: tuple[str, ...]) -> Connection:
        """The connection to a server with these folders."""
        from mcp_toolserver.protocol.upstreams.connection import Connection

        if roots not in server.connections:
            while len(server.connections) >= _MOST_CONNECTIONS:
                # The oldest, unless its resources are watched.
                oldest = min(server.connections, key=lambda one: bool(server.connections[one].watched))
                server.connections.pop(oldest).close()
            server.connections[roots] = connection = Connection(
                server.upstream, roots, server.open(roots), partial(self._found, server), self.background
            )
            connection.auth = server.auth
            connection.news = lambda uri: self.on_news(server.upstream.name, uri)
        return server.connections[roots]

    async def _try(self, server: Server) -> None:
        # Its state says why it failed.
        with suppress(ToolError):
            await self.connection(server, server.roots(None)).request(_nothing)

    async def _found(self, server: Server, client: Client) -> None:
        """List all tools and prompts of a server, before any call of them."""

        async def tools(cursor: str | None) -> tuple[Sequence[BaseModel], str | None]:
            page = await client.list_tools(cursor=cursor)
            return page.tools, page.next_cursor

        async def prompts(cursor: str | None) -> tuple[Sequence[BaseModel], str | None]:
            page = await client.list_prompts(cursor=cursor)
            return page.prompts, page.next_cursor

        has, before = client.server_capabilities, (server.listed, server.prompts)
        server.listed = await every(tools) if has.tools else []
        server.prompts = []
        # Its tools work without.
        with suppress(MCPError, ValidationError), anyio.move_on_after(_PROMPTS_SECONDS):
            server.prompts = await every(prompts) if has.prompts else []
        server.has_resources = has.resources is not None
        server.definitions.pins.remember(server.listed, server.prompts, has_resources=server.has_resources)
        if server.listed != before[0]:
            self._update()
        if server.prompts != before[1]:
            self.changed()

    def _update(self) -> None:
        """Make the tools anew from what the servers listed."""
        before = self.entries
        self.entries = {entry.spec.name: entry for one in self.servers.values() for entry in self._of(one)}
        shown = self.entries.keys() - self._named
        self.unlisted = frozenset(shown if len(self.entries) > self._most_listed else ())
        if self.entries.keys() != before.keys():
            self.changed()

    def _of(self, server: Server) -> list[Entry]:
        upstream = server.upstream
        if not server.listed:
            # What is listed first is approved, and nothing was.
            return []
        others = {
            plain(str(tool["name"])): name
            for name, one in self.servers.items()
            if one is not server
            for tool in one.listed
            if isinstance(tool, dict)
        }
        found: dict[str, Entry] = {}
        for name, tool in sorted(server.definitions.approved(server.listed).items()):
            own = own_name(upstream.name, name, found)
            level = upstream.level(name)
            if level is not None and own not in self._excluded:
                shown = presented(tool, Reach(level, upstream.is_networked), upstream.name)
                twin = others.get(plain(name))
                note = f"\n[{twin} has a tool of this name, too.]" if twin else ""
                found[own] = Entry(_spec(own, shown, note, upstream, level), f"{FOREIGN}{upstream.name}")
        return list(found.values())


async def every(
    page: Callable[[str | None], Awaitable[tuple[Sequence[BaseModel], str | None]]], key: str = "name"
) -> list[JsonValue]:
    """The usable definitions on all pages, within limits; `key` identifies them."""
    found: dict[str, Definition] = {}
    cursor = None
    for _ in range(_MOST_PAGES):
        listed, cursor = await page(cursor)
        more = [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in listed]
        found = named([*found.values(), *more], key)
        if not cursor or len(found) == MOST_TOOLS:
            break
    return list(found.values())


async def _nothing(_: Client) -> None:
    """Asks a server nothing but to be there."""


def own_name(server: str, tool: str, taken: Collection[str]) -> str:
    """`mcp__SERVER__TOOL`, in characters that every client takes, and unique; so are prompts named."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", f"{FOREIGN}{server}__{tool}")
    if name in taken or len(name) > _LONGEST_NAME:
        return f"{name[: _LONGEST_NAME - 9]}_{sha256(tool.encode()).hexdigest()[:8]}"
    return name


def _spec(name: str, shown: Definition, note: str, upstream: Upstream, level: Permission) -> ToolSpec:
    schema, title = shown.get("inputSchema"), shown.get("title")
    text = f"[{upstream.name}] {shown.get('description') or ''}"
    return ToolSpec(
        name=name,
        title=title if isinstance(title, str) else "",
        description=text[: _LONGEST_DESCRIPTION - len(note)].rstrip() + note,
        needs=frozenset({Capability.UPSTREAMS}),
        permission=level,
        args=ForeignArgs,
        run=partial(_run, upstream.name, str(shown["name"])),
        subjects=lambda args: tuple(texts_in(args.model_extra or {})),
        destructive=level is not Permission.READ_ONLY,
        open_world=upstream.is_networked,
        may_be_long=upstream.timeout > Limits.deadline,
        limits=Limits(deadline=upstream.timeout + _LOOK_SECONDS),
        profile=Profile.DEFAULT,
        custom_schema=schema if isinstance(schema, dict) else {"type": "object"},
    )


async def _run(server: str, tool: str, args: ForeignArgs, rt: Runtime) -> Output:
    return await rt.upstreams.call(server, tool, args.model_extra or {})
