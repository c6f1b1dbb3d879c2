"""The MCP server, the same for every transport and protocol version."""

import logging
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import mcp_types as mcp
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.shared.exceptions import MCPError
from mcp_types.methods import is_input_required
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from mcp_toolserver import __version__
from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.protocol import codex_sandbox_state
from mcp_toolserver.protocol.client_identity import GATEWAY
from mcp_toolserver.protocol.elicitation import set_level
from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.translate import Context, downgrade
from mcp_toolserver.telemetry import is_tracing

log = logging.getLogger(__name__)

NAME = "mcp-toolserver"
TITLE = "MCP toolserver"
DESCRIPTION = "A coding agent's tools over MCP, with a permission mode that the server enforces."
WEBSITE = "https://github.com/mcp-toolserver/mcp-toolserver"

_ICONS = Path(__file__).parent / "icons"
"""A shield with a prompt. The PNG files are the SVG files, drawn with resvg and reduced to a palette."""

_TOO_EARLY = (
    "{} came before initialize. Send initialize first, or a protocol version in each request: "
    f'_meta["{mcp.PROTOCOL_VERSION_META_KEY}"].'
)

_LOSING_TOOLS = ("claude-code", "local-agent-mode-")
"""Names of clients that show no tools of a server that declares completion. Claude Code 2.1 has this bug
(anthropics/claude-code, "MCP tools not exposed when server advertises 'completions' capability"), and no
release is known to fix it; the second is the Claude Code inside Claude Desktop. For these clients the server
serves completion but does not declare it."""


Feature = Callable[["ToolServer"], None]
"""Adds the handlers and capabilities of a part of the server that clients can see."""


class ToolServer(Server[Any]):
    """The SDK's server with the tools of `handlers` and with `features`, whose capabilities it declares on
    every transport."""

    list_changed: NotificationOptions
    """The lists that can change, declared as `listChanged`."""
    experimental: dict[str, dict[str, Any]]

    def __init__(self, handlers: Handlers, instructions: str, features: Sequence[Feature] = ()) -> None:
        @asynccontextmanager
        async def lifespan(_: Server[Any]) -> AsyncGenerator[dict[str, Any]]:
            try:
                yield {}
            finally:
                handlers.client_ids.forget_stateless()

        super().__init__(
            NAME,
            version=__version__,
            title=TITLE,
            description=DESCRIPTION,
            website_url=WEBSITE,
            icons=_icons(),
            instructions=instructions,
            lifespan=lifespan,
            on_list_tools=handlers.list_tools,
            get_tool_input_schema=handlers.schema,
            cache_hints=_cache_hints(has_users=bool(handlers.dispatcher.user)),
        )
        self.list_changed = NotificationOptions()
        self.experimental = {}
        self.add_request_handler("server/discover", mcp.RequestParams, self.discover)
        # The constructor requires a handler that returns a model.
        self.add_request_handler("tools/call", mcp.CallToolRequestParams, handlers.call_tool)
        self.add_notification_handler(
            "notifications/roots/list_changed", mcp.NotificationParams, handlers.roots_changed
        )
        dispatcher = handlers.dispatcher
        if _offers(dispatcher, Capability.TELL):
            self.add_request_handler("logging/setLevel", mcp.SetLevelRequestParams, set_level)
        can_ask = dispatcher.policy.may_ask or dispatcher.read_project or _offers(dispatcher, Capability.ASK)
        seal = cache(_boundary) if can_ask or dispatcher.without_model else None
        if not is_tracing():
            # The only default middleware creates spans, which nothing collects.
            self.middleware.clear()
        self.middleware.append(partial(answered, seal=seal))
        if Capability.UPSTREAMS in dispatcher.host.permissions:
            self.middleware.append(_no_gateway)
        for join in features:
            join(self)

    @property
    def server_info_stamp(self) -> dict[str, Any]:
        """Name and version, which every result of the stateless protocol carries.

        The SDK would also repeat the description and the icon; only `discover` sends those.
        """
        return {"name": self.name, "version": self.version}

    async def discover(self, context: Context, _: mcp.RequestParams | None) -> mcp.DiscoverResult:
        identity = self.server_info.model_dump(by_alias=True, mode="json", exclude_none=True)
        return mcp.DiscoverResult(
            supported_versions=list(MODERN_PROTOCOL_VERSIONS),
            capabilities=self.get_capabilities(protocol_version=context.protocol_version),
            instructions=self.instructions,
            _meta={mcp.SERVER_INFO_META_KEY: identity},
        )

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> mcp.ServerCapabilities:
        """The SDK calls this without the lists that change and without the experimental capabilities. In the
        stateless protocol it would declare every list as changing if any is."""
        found = super().get_capabilities(
            notification_options,
            experimental_capabilities or self.experimental or None,
            extensions,
            protocol_version=protocol_version,
        )
        changes = self.list_changed
        for capability, changing in (
            (found.tools, changes.tools_changed),
            (found.prompts, changes.prompts_changed),
            (found.resources, changes.resources_changed),
        ):
            if capability is not None:
                capability.list_changed = changing
        return found


def sandbox_state(server: ToolServer) -> None:
    """Declare that the server applies the sandbox policy that Codex sends with each call."""
    server.experimental[codex_sandbox_state.KEY] = {}


def _offers(dispatcher: Dispatcher, capability: Capability) -> bool:
    """Whether any tool on offer needs `capability`."""
    return any(capability in entry.spec.needs for entry in dispatcher.available)


def _cache_hints(*, has_users: bool) -> Mapping[Any, CacheHint]:
    """How long clients may keep lists, which change only with a restart, and for whom they are the same."""
    lists = CacheHint(ttl_ms=300_000, scope="private" if has_users else "public")
    return {
        "tools/list": lists,
        "resources/templates/list": lists,
        "prompts/list": lists,
        # The declared capabilities depend on the client's name; see `_LOSING_TOOLS`.
        "server/discover": CacheHint(ttl_ms=3_600_000, scope="private"),
    }


def _icons() -> list[mcp.Icon]:
    """The icons for light and dark backgrounds as data URIs, so that nothing has to be fetched.

    Every client that shows icons supports PNG; SVG stays sharp at every size.
    """
    icons: list[mcp.Icon] = []
    for theme in ("light", "dark"):
        for suffix, kind, size in (("svg", "image/svg+xml", "any"), ("png", "image/png", "64x64")):
            data = b64encode((_ICONS / f"{theme}.{suffix}").read_bytes()).decode()
            uri = f"data:{kind};base64,{data}"
            icons.append(mcp.Icon(src=uri, mime_type=kind, sizes=[size], theme=theme))
    return icons


def _boundary() -> ServerMiddleware[Any]:
    # A tenth of the server's imports, and most servers never ask a question.
    from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity

    return RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=NAME)


async def answered(
    ctx: Context, call_next: CallNext, seal: Callable[[], ServerMiddleware[Any]] | None = None
) -> HandlerResult:
    """The only middleware: the result of a request as its client knows it. Hides the text of unexpected
    exceptions, which the SDK would send in the handshake protocol.

    `seal` seals the state that a stateless client carries for a call which waits for an answer: handlers only
    get state that this server issued for the same call.
    """
    try:
        if seal and (ctx.params or {}).get("requestState") is not None:
            result = await seal()(ctx, call_next)
        else:
            result = await call_next(ctx)
            if seal and is_input_required(result):
                result = await seal()(ctx, partial(_given, result))
    except ValidationError:
        raise
    except MCPError as error:
        if _came_too_early(error, ctx):
            raise MCPError(mcp.INVALID_REQUEST, _TOO_EARLY.format(ctx.method)) from None
        raise
    except Exception:
        # Only the log has the details.
        log.exception("%s failed", ctx.method)
        raise MCPError(mcp.INTERNAL_ERROR, "Internal server error") from None
    return _downgraded(ctx, result)


async def _no_gateway(ctx: Context, call_next: CallNext) -> HandlerResult:
    """A middleware of a server with upstream servers: it is not one itself, so that no chain of them leads
    back to where it began."""
    if _name(ctx.params or {}) == GATEWAY:
        why = "This server has upstream servers, so it cannot be one"
        raise MCPError(mcp.INVALID_REQUEST, why)
    return await call_next(ctx)


async def _given(result: HandlerResult, _: Context) -> HandlerResult:
    return result


def _downgraded(ctx: Context, result: HandlerResult) -> HandlerResult:
    # `translate.result` already downgrades the results of calls.
    if not isinstance(result, dict) or ctx.method == "tools/call":
        return result
    if ctx.method in ("initialize", "server/discover") and _name(ctx.params or {}).startswith(_LOSING_TOOLS):
        result["capabilities"].pop("completions", None)
    version = result.get("protocolVersion") if ctx.method == "initialize" else ctx.protocol_version
    return downgrade(ctx.method, result, str(version))


def _came_too_early(error: MCPError, ctx: Context) -> bool:
    """Whether the SDK refused a request before the handshake, which it does with empty data."""
    is_refusal = error.error.code == mcp.INVALID_PARAMS and error.error.data == ""
    return is_refusal and ctx.method != "initialize" and ctx.session.client_params is None


def _name(params: Mapping[str, Any]) -> str:
    """The name of the client, in either protocol."""
    meta: Mapping[str, object] = params.get("_meta") or {}
    match params.get("clientInfo") or meta.get(mcp.CLIENT_INFO_META_KEY):
        case {"name": str() as name}:
            return name
        case _:
            return ""
