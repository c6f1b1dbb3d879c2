"""Builds the MCP server, the same for every transport and protocol version."""

from collections.abc import Sequence

import mcp_types as mcp
from mcp.server.caching import CacheHint

from mcp_toolserver import __version__
from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.pipeline.dispatcher import Dispatcher
from mcp_toolserver.protocol.elicitation.sealed_state import SealedState
from mcp_toolserver.protocol.error_middleware import error_middleware
from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.mcp_server import Feature, ToolServer
from mcp_toolserver.protocol.server_info import DESCRIPTION, NAME, TITLE, WEBSITE, icons
from mcp_toolserver.telemetry import is_tracing

_LISTS = CacheHint(ttl_ms=300_000, scope="public")
"""The lists are the same for every client and change only with a restart."""

_LISTS_OF_USER = CacheHint(ttl_ms=300_000, scope="private")
"""With named tokens, each name has lists of its own."""


def build(handlers: Handlers, instructions: str, features: Sequence[Feature] = ()) -> ToolServer:
    """The server with its tools and `features`."""
    lists = _LISTS_OF_USER if handlers.dispatcher.user else _LISTS
    server = ToolServer(
        NAME,
        version=__version__,
        title=TITLE,
        description=DESCRIPTION,
        website_url=WEBSITE,
        icons=icons(),
        instructions=instructions,
        on_list_tools=handlers.list_tools,
        get_tool_input_schema=handlers.schema,
        cache_hints={
            "tools/list": lists,
            "resources/templates/list": lists,
            "prompts/list": lists,
            # The declared capabilities depend on the client's name; see `resources.feature`.
            "server/discover": CacheHint(ttl_ms=3_600_000, scope="private"),
        },
    )
    # The constructor requires a handler that returns a model.
    server.add_request_handler("tools/call", mcp.CallToolRequestParams, handlers.call_tool)
    server.add_notification_handler(
        "notifications/roots/list_changed", mcp.NotificationParams, handlers.roots_changed
    )
    if _offers(handlers.dispatcher, Capability.TELL):
        server.add_request_handler("logging/setLevel", mcp.SetLevelRequestParams, handlers.messages.set_level)
    if not is_tracing():
        # The only default middleware creates spans, which nothing collects.
        server.middleware.clear()
    dispatcher = handlers.dispatcher
    if dispatcher.policy.may_ask or dispatcher.without_model or _offers(dispatcher, Capability.ASK):
        server.middleware.append(SealedState(NAME))
    server.middleware.append(error_middleware)
    for feature in features:
        feature.join(server)
    return server


def _offers(dispatcher: Dispatcher, capability: Capability) -> bool:
    """Whether any tool on offer needs `capability`."""
    return any(capability in entry.spec.needs for entry in dispatcher.available())
