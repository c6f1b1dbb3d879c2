"""Subscriptions: notifies clients that a list or a resource changed. Clients then read the new state.

In the handshake protocol (<= 2025-11-25) a client gets list changes and resources that it subscribed to.
In the stateless protocol (2026-07-28) it opens a stream (`subscriptions/listen`), which first acknowledges
the accepted part of the filter: what can change and what the client may read. Changes within a short
interval are sent once.
"""

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import mcp_types as mcp
from mcp.server.lowlevel import NotificationOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import (
    SUBSCRIPTION_ID_META_KEY,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
    event_to_notification,
)

from mcp_toolserver.capabilities.change_events import ResourceRef
from mcp_toolserver.protocol.resources.client_identity import ClientIds
from mcp_toolserver.protocol.resources.own_resources import AGENTS, CONFIG, JOBS, TASKS, TODOS
from mcp_toolserver.protocol.resources.source import not_found
from mcp_toolserver.protocol.translate import Context

STREAMS = 256
"""Maximum open streams."""

WATCHED = 64
"""Maximum resources of one stream or connection."""

SOON = 0.02
"""Seconds to wait for more changes before the first is sent."""

INTERVAL = 0.25
"""Minimum seconds between two deliveries."""

_LISTS = (ToolsListChanged(), PromptsListChanged(), ResourcesListChanged())

_UPDATED: Mapping[str, Sequence[tuple[str, bool]]] = {
    "job": ((JOBS, True), (f"{JOBS}/{{}}", False)),
    "agent": ((f"{AGENTS}/{{}}", False),),
    "task": ((TASKS, True), (f"{TASKS}/{{}}", True)),
    "todos": ((TODOS, True),),
    "preferences": ((CONFIG, False),),
}
"""By kind the resources that a change affects, and whether only its owners are told. A saved output never
changes."""


FilterExtension = Callable[[object, str], tuple[Any, Collection[Hashable]] | None]
"""Parses a filter key of a protocol extension for a client: returns the acknowledged part and the keys of its
notifications, or None."""


@dataclass(frozen=True)
class ChangeNotification:
    """A notification for the subscribers of a key."""

    key: Hashable
    message: Callable[[dict[str, Any]], Any]
    """Builds the MCP notification with this `_meta`."""


def change_notification(event: ServerEvent) -> ChangeNotification:
    """The notification of an event, which is its own key."""
    return ChangeNotification(event, partial(event_to_notification, event))


@dataclass(eq=False)
class _Stream:
    owner: str
    keys: frozenset[Hashable]
    due: dict[Hashable, ChangeNotification] = field(default_factory=dict[Hashable, ChangeNotification])
    news: anyio.Event = field(default_factory=anyio.Event)

    async def taken(self) -> list[ChangeNotification]:
        """Wait for notifications and take them."""
        await self.news.wait()
        found = list(self.due.values())
        self.due.clear()
        self.news = anyio.Event()
        return found


class Subscriptions:
    """All streams and subscriptions. `watched` decides whether a client may subscribe to a resource."""

    def __init__(
        self,
        client_ids: ClientIds,
        changing: NotificationOptions,
        watched: Callable[[str, str], bool],
        extra: Mapping[str, FilterExtension],
    ) -> None:
        self._client_ids = client_ids
        self._watched = watched
        self._extra = extra
        flags = (changing.tools_changed, changing.prompts_changed, changing.resources_changed)
        self._lists = frozenset(event for event, changes in zip(_LISTS, flags, strict=True) if changes)
        self._streams: set[_Stream] = set()
        self._subscribed: dict[str, set[str]] = {}
        self._waiting: dict[tuple[Hashable, frozenset[str] | None], ChangeNotification] = {}
        self._last_sent = -INTERVAL
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._due: dict[str, dict[Hashable, ChangeNotification]] = {}

    def on_change(self, thing: ResourceRef, owners: frozenset[str], *, listed: bool) -> None:
        """Publish the resources that a change of the server's state affects."""
        kind, handle = thing
        if listed and kind in ("output", "job", "agent", "task"):
            self.publish(change_notification(ResourcesListChanged()), owners)
        for uri, by_owner in _UPDATED.get(kind, ()):
            event = ResourceUpdated(uri.format(handle))
            self.publish(change_notification(event), owners if by_owner else None)

    def publish(self, notification: ChangeNotification, owners: frozenset[str] | None = None) -> None:
        """Notify all subscribers, or only those among `owners`."""
        if not self._waiting:
            loop = asyncio.get_running_loop()
            loop.call_later(max(SOON, self._last_sent + INTERVAL - loop.time()), self._flush)
        self._waiting[notification.key, owners] = notification

    async def subscribe(self, context: Context, params: mcp.SubscribeRequestParams) -> mcp.EmptyResult:
        """Subscribe to one resource, in the handshake protocol."""
        owner = self._client_ids.id_for(context)
        if not self._watched(params.uri, owner):
            raise not_found(params.uri, context, "Such a resource has no change notifications.")
        uris = self._subscribed.setdefault(owner, set())
        if len(uris) >= WATCHED and params.uri not in uris:
            raise MCPError(mcp.INVALID_PARAMS, f"No more than {WATCHED} resources can be subscribed to.")
        uris.add(params.uri)
        return mcp.EmptyResult()

    async def unsubscribe(self, context: Context, params: mcp.UnsubscribeRequestParams) -> mcp.EmptyResult:
        """Unsubscribe from one resource."""
        self._subscribed.get(self._client_ids.id_for(context), set()).discard(params.uri)
        return mcp.EmptyResult()

    async def listen(
        self, context: Context, params: mcp.SubscriptionsListenRequestParams
    ) -> mcp.SubscriptionsListenResult:
        """Send notifications until the client closes the stream."""
        if len(self._streams) >= STREAMS:
            raise MCPError(mcp.INTERNAL_ERROR, f"{STREAMS} streams are open already; close one.")
        owner = self._client_ids.id_for(context)
        honoured, keys = self._honoured(params.notifications, owner)
        meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: context.request_id}
        acknowledged = mcp.SubscriptionsAcknowledgedNotification(
            params=mcp.SubscriptionsAcknowledgedNotificationParams(notifications=honoured, _meta=meta)
        )
        # Registered before the acknowledgement is sent, so that no change in between is lost.
        stream = _Stream(owner, keys)
        self._streams.add(stream)
        try:
            await context.session.send_notification(acknowledged, context.request_id)
            while True:
                for notification in await stream.taken():
                    await context.session.send_notification(notification.message(meta), context.request_id)
        finally:
            self._streams.discard(stream)

    def _honoured(
        self, asked: mcp.SubscriptionFilter, owner: str
    ) -> tuple[mcp.SubscriptionFilter, frozenset[Hashable]]:
        """The accepted part of a filter, and its keys."""
        wanted = (asked.tools_list_changed, asked.prompts_list_changed, asked.resources_list_changed)
        lists = [event for event, is_wanted in zip(_LISTS, wanted, strict=True) if is_wanted]
        tools, prompts, resources = ((event in self._lists and event in lists) or None for event in _LISTS)
        given = dict.fromkeys(asked.resource_subscriptions or ())
        uris = [uri for uri in given if self._watched(uri, owner)][:WATCHED]
        keys: set[Hashable] = {*self._lists.intersection(lists), *map(ResourceUpdated, uris)}
        extra: dict[str, Any] = {}
        for name, value in (asked.model_extra or {}).items():
            if name in self._extra and (found := self._extra[name](value, owner)) is not None:
                extra[name] = found[0]
                keys.update(found[1])
        honoured = mcp.SubscriptionFilter(
            tools_list_changed=tools,
            prompts_list_changed=prompts,
            resources_list_changed=resources,
            resource_subscriptions=uris or None,
            **extra,
        )
        return honoured, frozenset(keys)

    def _flush(self) -> None:
        self._last_sent = asyncio.get_running_loop().time()
        waiting, self._waiting = self._waiting, {}
        for gone in self._subscribed.keys() - self._client_ids.connections.keys():
            del self._subscribed[gone]
        for (key, owners), notification in waiting.items():
            for stream in self._streams:
                if key in stream.keys and (owners is None or stream.owner in owners):
                    stream.due[key] = notification
                    stream.news.set()
            for name in self._listening(key):
                if owners is None or name in owners:
                    self._send_soon(name, notification)

    def _listening(self, key: Hashable) -> Iterator[str]:
        """Handshake connections that are subscribed to `key`."""
        if key in self._lists:
            yield from self._client_ids.connections
        elif isinstance(key, ResourceUpdated):
            yield from (name for name, uris in self._subscribed.items() if key.uri in uris)

    def _send_soon(self, name: str, notification: ChangeNotification) -> None:
        """Send in one task per connection, so that a client that does not read delays no other."""
        self._due.setdefault(name, {})[notification.key] = notification
        if name not in self._sending:
            self._sending[name] = task = asyncio.get_running_loop().create_task(self._send(name))
            task.add_done_callback(lambda _: self._sending.pop(name))

    async def _send(self, name: str) -> None:
        while due := self._due.pop(name, None):
            for notification in due.values():
                if (connection := self._client_ids.connections.get(name)) is None:
                    # The client left before this task ran, or while an earlier notification was sent.
                    break
                wire = notification.message({}).model_dump(by_alias=True, mode="json", exclude_none=True)
                await connection.notify(wire["method"], wire.get("params"))
