"""The resources of upstream servers among those of this one."""

import base64
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as mcp

from mcp_toolserver.pipeline.call import InputRequired
from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.resources.source import Refused, Source, Visitor, text
from mcp_toolserver.protocol.translate import UPSTREAMS_URI
from mcp_toolserver.protocol.upstreams.content import own_uri
from mcp_toolserver.protocol.upstreams.prompts import READ, clipped, completions
from mcp_toolserver.protocol.upstreams.servers import UpstreamServers
from mcp_toolserver.tool_spec import Output, Runtime

_LIST = "ListMcpResources"
_MOST_LISTED = 500
"""Of a server."""
_SECONDS, _PAUSE_SECONDS = 5.0, 60.0
"""A server that does not list its resources in time is left out, and not asked again for a while."""

_Listing = tuple[Sequence[mcp.Resource], Sequence[mcp.ResourceTemplate]]


@dataclass(frozen=True)
class UpstreamResources(Source):
    """The resources `toolserver://upstreams/SERVER/URI`. What a client does with them is a call of
    `ListMcpResources` or `ReadMcpResource`, with the rules, the limits and the audit entry of that tool."""

    handlers: Handlers
    servers: UpstreamServers
    slow: dict[str, float] = field(default_factory=dict[str, float])
    """By server, until when it is not asked."""

    async def listed(self, visitor: Visitor) -> Sequence[mcp.Resource]:
        return [
            mcp.Resource(
                name=clipped(one.name),
                title=one.title and clipped(one.title),
                uri=own_uri(server, one.uri),
                description=clipped(f"[{server}] {one.description or ''}"),
                mime_type="text/plain",
            )
            for server, (resources, _) in (await self._listings(visitor)).items()
            for one in resources[:_MOST_LISTED]
        ]

    async def templates(self, visitor: Visitor) -> Sequence[mcp.ResourceTemplate]:
        return [
            mcp.ResourceTemplate(
                name=clipped(one.name),
                title=one.title and clipped(one.title),
                uri_template=own_uri(server, one.uri_template),
                description=clipped(f"[{server}] {one.description or ''}"),
            )
            for server, (_, templates) in (await self._listings(visitor)).items()
            for one in templates[:_MOST_LISTED]
        ]

    async def read(self, uri: str, visitor: Visitor) -> mcp.ReadResourceResult | None:
        if (asked := _asked(uri)) is None:
            return None
        found = await visitor.call(READ, asked)
        result = text(uri, found.text)
        for image in found.images:
            data = base64.b64encode(image.data).decode()
            result.contents.append(mcp.BlobResourceContents(uri=uri, blob=data, mime_type=image.mime_type))
        return result

    async def watch(self, uri: str, visitor: Visitor) -> bool:
        if (asked := _asked(uri)) is None:
            return False
        accepted: list[bool] = []

        async def run(args: Any, rt: Runtime) -> Output:
            accepted.append(await rt.upstreams.watch(args.server, args.uri))
            return Output("")

        with suppress(Refused, InputRequired):
            await visitor.call(READ, asked, run)
        return accepted == [True]

    def unwatch(self, uri: str) -> None:
        if asked := _asked(uri):
            server = self.servers.servers.get(asked["server"])
            for connection in server.connections.values() if server else ():
                connection.unwatch(asked["uri"])

    async def complete(self, name: str, argument: str, value: str, visitor: Visitor) -> Sequence[str] | None:
        if (asked := _asked(name)) is None:
            return None
        return await completions(
            visitor, asked, mcp.ResourceTemplateReference(uri=asked["uri"]), argument, value
        )

    async def _listings(self, visitor: Visitor) -> Mapping[str, _Listing]:
        """What the servers list that answer in time, in the order of the file."""
        found: dict[str, _Listing] = {}

        async def ask(server: str) -> None:
            async def run(_: Any, rt: Runtime) -> Output:
                found[server] = await rt.upstreams.listing(server)
                return Output("")

            with anyio.move_on_after(_SECONDS) as limit, suppress(Refused, InputRequired):
                await visitor.call(_LIST, {"server": server}, run)
            # One that is still starting announces its resources when it is connected.
            if limit.cancelled_caught and self.servers.servers[server].state == "connected":
                self.slow[server] = time.monotonic() + _PAUSE_SECONDS

        if {_LIST, READ} <= self.handlers.offered:
            async with anyio.create_task_group() as tasks:
                for name, server in self.servers.servers.items():
                    if server.has_resources and self.slow.get(name, 0.0) < time.monotonic():
                        tasks.start_soon(ask, name)
        return {name: found[name] for name in self.servers.servers if name in found}


def _asked(uri: str) -> dict[str, str] | None:
    """The arguments of `ReadMcpResource` for an address of this kind."""
    server, _, theirs = uri.removeprefix(UPSTREAMS_URI).partition("/")
    return {"server": server, "uri": theirs} if uri.startswith(UPSTREAMS_URI) and server and theirs else None
