"""The MCP server: one factory for every transport and both eras of the protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.util import find_spec
from typing import Any, Protocol

import mcp_types as mcp
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types.version import is_version_at_least
from pydantic import JsonValue

from mcp_toolserver import __version__
from mcp_toolserver.capabilities import Capability
from mcp_toolserver.dispatch import Dispatcher
from mcp_toolserver.errors import NotFound, UnknownTool
from mcp_toolserver.protocol import translate
from mcp_toolserver.protocol.elicit import Asker, Questions
from mcp_toolserver.protocol.messages import Messages
from mcp_toolserver.protocol.roots import ClientRoots
from mcp_toolserver.protocol.sealing import Sealing
from mcp_toolserver.text.visible import visible

NAME = "mcp-toolserver"
SECURITY_URI = "toolserver://security"

_RESOURCE_NOT_FOUND = -32002
"""Of the handshake era; since 2026-07-28 it is "invalid params"."""

_LISTS = CacheHint(ttl_ms=300_000, scope="public")

_SESSION = "mcp-session-id"

_TOKEN_LIMIT = 256
"""Characters of a progress token; each notification echoes it."""

_Context = ServerRequestContext[Any, Any]


class Outputs(Protocol):
    """Long results, by handle."""

    async def read(self, handle: str, limit: int) -> bytes:
        """Raises: NotFound: no such handle, or the text is longer than `limit` bytes."""
        ...


@dataclass(frozen=True, kw_only=True)
class Handlers:
    """Answers requests by asking the dispatcher."""

    dispatcher: Dispatcher
    outputs: Outputs
    ask_seconds: float
    security: str
    """What is enforced here, for people and models to read."""
    questions: Questions = field(default_factory=Questions)
    roots: ClientRoots = field(default_factory=ClientRoots)
    messages: Messages = field(default_factory=Messages)

    async def list_tools(self, _: _Context, params: mcp.PaginatedRequestParams | None) -> mcp.ListToolsResult:
        """All tools on one page: many clients never ask for a second."""
        _refuse_cursor(params)
        return mcp.ListToolsResult(tools=translate.tools(self.dispatcher))

    async def call_tool(
        self, context: _Context, params: mcp.CallToolRequestParams
    ) -> dict[str, JsonValue] | mcp.InputRequiredResult:
        """One call; the dispatcher turns every failure but an unknown name into a result."""
        asker = Asker(context, params, self.questions, self.ask_seconds)
        caller = _Client(context, asker, self.roots, self.messages)
        try:
            answer = await self.dispatcher.call(params.name, params.arguments, caller)
        except UnknownTool:
            raise MCPError(mcp.INVALID_PARAMS, f"Unknown tool: {visible(params.name[:128])}") from None
        if answer.pending and asker.pending is not None:
            return asker.pending
        return translate.result(answer, context.protocol_version)

    async def list_resources(
        self, _: _Context, params: mcp.PaginatedRequestParams | None
    ) -> mcp.ListResourcesResult:
        """What is enforced. Long results are named by the calls that made them, not listed."""
        _refuse_cursor(params)
        security = mcp.Resource(
            name="security",
            uri=SECURITY_URI,
            description="What this server enforces, and by which layer.",
            mime_type="text/plain",
        )
        return mcp.ListResourcesResult(resources=[security])

    async def list_templates(
        self, _: _Context, params: mcp.PaginatedRequestParams | None
    ) -> mcp.ListResourceTemplatesResult:
        """The one template: results that were too long to send."""
        _refuse_cursor(params)
        template = mcp.ResourceTemplate(
            name="full output",
            uri_template=translate.OUTPUT_URI + "{id}",
            description="The whole of a result that was cut.",
            mime_type="text/plain",
        )
        return mcp.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(
        self, context: _Context, params: mcp.ReadResourceRequestParams
    ) -> mcp.ReadResourceResult:
        """A long result, or what is enforced, as text."""
        uri = str(params.uri)
        if uri == SECURITY_URI:
            return _text(uri, self.security)
        try:
            if not uri.startswith(translate.OUTPUT_URI):
                raise NotFound("no such resource")
            content = await self.outputs.read(uri.removeprefix(translate.OUTPUT_URI), _RESOURCE_LIMIT)
            text = self.dispatcher.shown(content.decode(errors="replace"))
            if len(text) > _RESOURCE_LIMIT:
                raise NotFound("too long with its escapes")
        except NotFound:
            modern = is_version_at_least(context.protocol_version, translate.MODERN)
            code = mcp.INVALID_PARAMS if modern else _RESOURCE_NOT_FOUND
            raise MCPError(code, "Resource not found", {"uri": uri}) from None
        return _text(uri, text)

    async def roots_changed(self, context: _Context, _: mcp.NotificationParams | None) -> None:
        """Ask again at the next call."""
        self.roots.changed(context)

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of a listed tool, which spares the SDK a whole tools/list per HTTP call."""
        try:
            return self.dispatcher.registry.find(name).schema
        except UnknownTool:
            return None


def _text(uri: str, text: str) -> mcp.ReadResourceResult:
    return mcp.ReadResourceResult(
        contents=[mcp.TextResourceContents(uri=uri, text=text, mime_type="text/plain")]
    )


_RESOURCE_LIMIT = 10 * 1024 * 1024
"""Bytes of one resource; longer ones are read in slices with read_file."""


class _Client:
    """The caller of one call."""

    def __init__(self, context: _Context, asker: Asker, roots: ClientRoots, messages: Messages) -> None:
        self._context = context
        self._roots = roots
        self._messages = messages
        self._reports = 0
        self.ask = asker.ask
        self.elicit = asker.elicit

    @property
    def name(self) -> str:
        """The client's own name for itself, and a mark by which its HTTP sessions differ."""
        client = self._context.session.client_params
        named = f"{client.client_info.name} {client.client_info.version}" if client else ""
        session = getattr(self._context.request, "headers", {}).get(_SESSION)
        return f"{named} #{sha256(session.encode()).hexdigest()[:8]}" if session else named

    async def report(self, message: str) -> None:
        """Progress has no known end; the count only has to rise."""
        token = (self._context.meta or {}).get("progress_token")
        if isinstance(token, str) and len(token) > _TOKEN_LIMIT:
            return
        self._reports += 1
        await self._context.session.report_progress(float(self._reports), message=message)

    async def tell(self, message: str) -> None:
        await self._messages.send(self._context, message)

    async def roots(self) -> Sequence[str] | None:
        return await self._roots.of(self._context)


def _refuse_cursor(params: mcp.PaginatedRequestParams | None) -> None:
    """There is one page, so nobody was given a cursor."""
    if params is not None and params.cursor:
        raise MCPError(mcp.INVALID_PARAMS, "Invalid cursor")


def build(handlers: Handlers, instructions: str) -> Server[Any]:
    """The server for every transport."""
    server: Server[Any] = Server(
        NAME,
        version=__version__,
        title="MCP toolserver",
        instructions=instructions,
        on_list_tools=handlers.list_tools,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_templates,
        on_read_resource=handlers.read_resource,
        get_tool_input_schema=handlers.schema,
        cache_hints={
            "tools/list": _LISTS,
            "resources/templates/list": _LISTS,
            "server/discover": CacheHint(ttl_ms=3_600_000, scope="public"),
        },
    )
    # The constructor would have a model as the result.
    server.add_request_handler("tools/call", mcp.CallToolRequestParams, handlers.call_tool)
    server.add_notification_handler(
        "notifications/roots/list_changed", mcp.NotificationParams, handlers.roots_changed
    )
    if _offers(handlers.dispatcher, Capability.TELL):
        server.add_request_handler("logging/setLevel", mcp.SetLevelRequestParams, handlers.messages.set_level)
    if find_spec("opentelemetry.sdk") is None:
        # Its one entry makes spans, which nobody collects without OpenTelemetry's SDK.
        server.middleware.clear()
    if handlers.dispatcher.policy.may_ask or _offers(handlers.dispatcher, Capability.ASK):
        server.middleware.append(Sealing(NAME))
    return server


def _offers(dispatcher: Dispatcher, capability: Capability) -> bool:
    """Whether any tool on offer needs `capability`."""
    return any(capability in entry.spec.needs for entry in dispatcher.available())
