"""Resources, prompts, completion and change notifications.

At start the server registers only the names of the methods. `handlers` is imported with the first request for
one of them, or with the first change that has a subscriber, because stdio clients wait for the start and few
use any of this first.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import mcp_types as mcp
from mcp.server.lowlevel import NotificationOptions
from pydantic import BaseModel

from mcp_toolserver.capabilities.change_events import ResourceRef
from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.protocol.handlers import Handlers
from mcp_toolserver.protocol.mcp_server import ToolServer
from mcp_toolserver.protocol.translate import Context
from mcp_toolserver.stores.saved_outputs import OutputStore

if TYPE_CHECKING:
    from mcp_toolserver.protocol.resources.handlers import ResourceHandlers
    from mcp_toolserver.protocol.resources.source import Source
    from mcp_toolserver.protocol.resources.subscriptions import ChangeNotification, FilterExtension
    from mcp_toolserver.protocol.upstreams.servers import UpstreamServers

_Answer = Callable[[Context, Any], Awaitable[Any]]
_Row = tuple[type[BaseModel], "Callable[[ResourceHandlers], _Answer]"]

_METHODS: Mapping[str, _Row] = {
    "resources/list": (mcp.PaginatedRequestParams, lambda made: made.list_resources),
    "resources/templates/list": (mcp.PaginatedRequestParams, lambda made: made.list_templates),
    "resources/read": (mcp.ReadResourceRequestParams, lambda made: made.read),
    "resources/subscribe": (mcp.SubscribeRequestParams, lambda made: made.subscriptions.subscribe),
    "resources/unsubscribe": (mcp.UnsubscribeRequestParams, lambda made: made.subscriptions.unsubscribe),
    "subscriptions/listen": (mcp.SubscriptionsListenRequestParams, lambda made: made.subscriptions.listen),
    "prompts/list": (mcp.PaginatedRequestParams, lambda made: made.list_prompts),
    "prompts/get": (mcp.GetPromptRequestParams, lambda made: made.get_prompt),
    "completion/complete": (mcp.CompleteRequestParams, lambda made: made.complete),
}

SKILLS = "io.modelcontextprotocol/skills"
"""The skills extension (SEP-2640)."""

_SKILL_METHODS: Mapping[str, _Row] = {
    "skills/list": (mcp.PaginatedRequestParams, lambda made: made.skills.list_skills),
    "skills/get": (mcp.ReadResourceRequestParams, lambda made: made.skills.get_skill),
}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ResourceFeature:
    """A `Feature` by its `join`; what it offers is built with the first request for it."""

    handlers: Handlers
    outputs: OutputStore
    security: str
    """A text on what this server enforces."""
    roots: Sequence[str] = ()
    settings: Callable[[], Mapping[str, object]] = dict
    """The settings that clients may read."""
    sources: Sequence["Source"] = ()
    """More resources and prompts, listed after the server's own."""
    upstreams: "UpstreamServers | None" = None
    """Other servers, whose prompts are listed after those."""
    changing: NotificationOptions = field(default_factory=lambda: NotificationOptions(resources_changed=True))
    """The lists that can change."""
    extra: dict[str, "FilterExtension"] = field(default_factory=dict[str, "FilterExtension"])
    """Extensions of the filter of `subscriptions/listen`, by key."""

    def join(self, server: ToolServer) -> None:
        methods = dict(_METHODS)
        if any(Capability.SKILLS in entry.spec.needs for entry in self.handlers.dispatcher.available):
            methods |= _SKILL_METHODS
            server.extensions[SKILLS] = {}
        for method, (params, chosen) in methods.items():
            server.add_request_handler(method, params, self._answering(chosen))
        if self.upstreams is not None:
            self.changing.tools_changed = self.changing.prompts_changed = True
        server.list_changed = self.changing
        self.handlers.changes.on_change = self._on_change

    def publish(self, notification: "ChangeNotification", owners: frozenset[str] | None = None) -> None:
        """Notify the subscribers; see `Subscriptions.publish`."""
        self.resource_handlers.subscriptions.publish(notification, owners)

    @cached_property
    def resource_handlers(self) -> "ResourceHandlers":
        from mcp_toolserver.protocol.resources.handlers import ResourceHandlers

        return ResourceHandlers(self)

    @property
    def is_in_use(self) -> bool:
        """Whether any client has used the feature."""
        return "resource_handlers" in vars(self)

    def _answering(self, chosen: "Callable[[ResourceHandlers], _Answer]") -> _Answer:
        return lambda context, params: chosen(self.resource_handlers)(context, params)

    def _on_change(self, thing: ResourceRef, owners: frozenset[str], listed: bool) -> None:
        if self.handlers.client_ids.connections or self.is_in_use:
            self.resource_handlers.subscriptions.on_change(thing, owners, listed=listed)
