"""The upstream servers for one call; imported with the first, because clients wait for the start."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import mcp_types as mcp
from mcp import Client
from pydantic import BaseModel, JsonValue

from mcp_toolserver.errors import Denied, Failed, NotFound, ToolError
from mcp_toolserver.protocol.upstreams.connection import Answer, Connection
from mcp_toolserver.protocol.upstreams.content import answered, output_of, prompt_output
from mcp_toolserver.protocol.upstreams.servers import Server, UpstreamServers, every
from mcp_toolserver.runtime.host_services import ServiceRequest
from mcp_toolserver.text.lines.escape_invisible import visible
from mcp_toolserver.tool_spec import Output


@dataclass(frozen=True)
class CallUpstreams:
    """The upstream servers for one call."""

    servers: UpstreamServers
    request: ServiceRequest

    async def call(self, name: str, tool: str, arguments: dict[str, JsonValue]) -> Output:
        """Call a tool of a server.

        Raises:
            Denied: its definition waits for approval.
            Failed: the tool says that it failed.
            ToolError: the server is not there, or does not answer.
        """
        server = self._server(name)
        connection = self._connection(server)
        await connection.client()
        if tool not in server.definitions.known:
            raise NotFound(f"{name} has no tool {tool} any more.")
        if why := server.definitions.why_off(tool):
            raise Denied(why)

        async def send(client: Client) -> mcp.CallToolResult:
            return await client.call_tool(tool, arguments, progress_callback=self._report)

        result = await connection.request(send, self._answer(name))
        output = output_of(result.content, result.structured_content, name, await connection.notes())
        if result.is_error:
            raise Failed(output.text)
        return output

    async def resources(self, name: str) -> str:
        """What the server `name`, or each server, has as resources and templates, in lines; and its state."""
        chosen = [self._server(name)] if name else list(self.servers.servers.values())
        return "\n".join([line for server in chosen for line in await self._resources(server)])

    async def read(self, name: str, uri: str) -> Output:
        """The contents of a resource. Raises: ToolError."""
        connection = self._connection(self._server(name))
        found = await connection.request(lambda client: client.read_resource(uri), self._answer(name))
        blocks = [mcp.EmbeddedResource(type="resource", resource=one) for one in found.contents]
        return output_of(blocks, None, name, await connection.notes())

    async def prompt(self, name: str, prompt: str, arguments: dict[str, str]) -> Output:
        """The text of a prompt. Raises: ToolError."""
        connection = self._connection(self._server(name))
        found = await connection.request(
            lambda client: client.get_prompt(prompt, arguments), self._answer(name)
        )
        return prompt_output(found.messages, name, await connection.notes())

    async def completions(
        self, name: str, of: mcp.PromptReference | mcp.ResourceTemplateReference, argument: str, value: str
    ) -> Sequence[str]:
        """What the server proposes for an argument of a prompt or template. Raises: ToolError."""

        async def send(client: Client) -> Sequence[str]:
            if client.server_capabilities.completions is None:
                return ()
            return (await client.complete(of, {"name": argument, "value": value})).completion.values

        return await self._connection(self._server(name)).request(send)

    async def authorize(self, name: str) -> str:
        """See `Authorization.authorize`."""
        server = self._server(name)
        if server.auth is None:
            return (
                f"{name} takes no login: it is a program on this machine, or has a header for authorization."
            )
        found = await server.auth.authorize(self.servers.background)
        # The next call does not wait for the time of the next attempt.
        for roots, connection in list(server.connections.items()):
            if connection.state != "connected":
                server.connections.pop(roots).close()
        return found

    async def listing(self, name: str) -> tuple[list[mcp.Resource], list[mcp.ResourceTemplate]]:
        """What a server has as resources and templates, within limits. Raises: ToolError."""
        connection = self._connection(self._server(name))

        async def resources(client: Client, cursor: str | None) -> tuple[Sequence[BaseModel], str | None]:
            page = await client.list_resources(cursor=cursor)
            return page.resources, page.next_cursor

        async def templates(client: Client, cursor: str | None) -> tuple[Sequence[BaseModel], str | None]:
            page = await client.list_resource_templates(cursor=cursor)
            return page.resource_templates, page.next_cursor

        if (await connection.client()).server_capabilities.resources is None:
            return [], []
        found = await connection.request(lambda client: every(partial(resources, client), "uri"))
        more = await connection.request(lambda client: every(partial(templates, client), "uriTemplate"))
        return [*map(mcp.Resource.model_validate, found)], [*map(mcp.ResourceTemplate.model_validate, more)]

    async def watch(self, name: str, uri: str) -> bool:
        """See `Connection.watch`."""
        return await self._connection(self._server(name)).watch(uri)

    async def _resources(self, server: Server) -> list[str]:
        name = server.upstream.name
        try:
            listed, templates = await self.listing(name)
        except ToolError as error:
            return [f"{name}: {error}"]
        found = [
            *((one.uri, one.name, one.description) for one in listed),
            *((one.uri_template, one.name, one.description) for one in templates),
        ]
        lines = [f"  {uri}  {label}{f': {text}' if text else ''}" for uri, label, text in found]
        return [
            f"{name} ({server.state}), resources and templates: {len(found)}",
            *(" ".join(visible(line).split("\n")) for line in lines),
        ]

    def _server(self, name: str) -> Server:
        if (server := self.servers.servers.get(name)) is None:
            raise NotFound(
                f"No upstream server is called {name!r}; there are {', '.join(self.servers.servers)}."
            )
        return server

    def _connection(self, server: Server) -> Connection:
        roots = server.roots(self.request.workspace.roots)
        return self.servers.connection(server, roots)

    async def _report(self, progress: float, total: float | None, message: str | None) -> None:
        of = "" if total is None else f" of {total:g}"
        await self.request.user.report(message or f"{progress:g}{of}")

    def _answer(self, name: str) -> Answer:
        return partial(answered, server=name, user=self.request.user)
