"""The MCP server: one factory for every transport and both eras of the protocol."""

from collections.abc import Sequence

import mcp_types as mcp
from mcp.server.caching import CacheHint

from mcp_toolserver import __version__
from mcp_toolserver.capabilities.prices import Capability
from mcp_toolserver.dispatch import Dispatcher
from mcp_toolserver.observe import traced
from mcp_toolserver.protocol.feature import Feature, ToolServer
from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.identity import DESCRIPTION, NAME, TITLE, icons
from mcp_toolserver.protocol.sealing import Sealing
from mcp_toolserver.protocol.wire import presentable

_LISTS = CacheHint(ttl_ms=300_000, scope="public")
"""They are the same for every caller, and change only when the server is started anew."""


def build(handlers: Handlers, instructions: str, features: Sequence[Feature] = ()) -> ToolServer:
    """The server for every transport: tools, and what `features` add."""
    server = ToolServer(
        NAME,
        version=__version__,
        title=TITLE,
        description=DESCRIPTION,
        icons=icons(),
        instructions=instructions,
        on_list_tools=handlers.list_tools,
        get_tool_input_schema=handlers.schema,
        cache_hints={
            "tools/list": _LISTS,
            "resources/templates/list": _LISTS,
            "prompts/list": _LISTS,
            # What is declared depends on what the client calls itself; see `beside`.
            "server/discover": CacheHint(ttl_ms=3_600_000, scope="private"),
        },
    )
    # The constructor would have a model as the result.
    server.add_request_handler("tools/call", mcp.CallToolRequestParams, handlers.call_tool)
    server.add_notification_handler(
        "notifications/roots/list_changed", mcp.NotificationParams, handlers.roots_changed
    )
    if _offers(handlers.dispatcher, Capability.TELL):
        server.add_request_handler("logging/setLevel", mcp.SetLevelRequestParams, handlers.messages.set_level)
    if not traced():
        # Its one entry makes spans, which nobody collects.
        server.middleware.clear()
    if handlers.dispatcher.policy.may_ask or _offers(handlers.dispatcher, Capability.ASK):
        server.middleware.append(Sealing(NAME))
    server.middleware.append(presentable)
    for feature in features:
        feature.join(server)
    return server


def _offers(dispatcher: Dispatcher, capability: Capability) -> bool:
    """Whether any tool on offer needs `capability`."""
    return any(capability in entry.label.needs for entry in dispatcher.available())
