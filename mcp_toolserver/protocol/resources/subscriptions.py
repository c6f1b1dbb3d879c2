"""Subscriptions: notifies clients that a list or a resource changed. Clients then read the new state.

In the handshake protocol (<= 2025-11-25) a client gets list changes and resources that it subscribed to.
In the stateless protocol (2026-07-28) it opens a stream (`subscriptions/listen`), which first acknowledges
the accepted part of the filter: what can change and what the client may read. Changes within a short
interval are sent once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

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
from mcp_toolserver.protocol.client_identity import ClientIds
from mcp_toolserver.protocol.resources.own_resources import AGENTS, CONFIG, JOBS, SCHEDULES, TASKS, TODOS
from mcp_toolserver.protocol.resources.source import not_found
from mcp_toolserver.protocol.translate import Context

STREAMS = 256
"""Maximum open streams."""

WATCHED = 64
"""Maximum resources of one stream or connection."""

SOON = 0.02
"""Seconds to wait for more changes before the first is sent."""

WATCH_SECONDS = 10.0
"""Seconds that upstream servers may take to accept the subscriptions of a stream."""

INTERVAL = 0.25
"""Minimum seconds between two deliveries."""

_LISTS = {"tools": ToolsListChanged(), "prompts": PromptsListChanged(), "resources": ResourcesListChanged()}

_UPDATED: Mapping[str, Sequence[tuple[str, bool]]] = {
    "job": ((JOBS, True), (f"{JOBS}/{{}}", False)),
    "agent": ((f"{AGENTS}/{{}}", False),),
    "task": ((TASKS, True), (f"{TASKS}/{{}}", True)),
    "schedules": ((SCHEDULES, False),),
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
    key: Hashable
    message: Callable[[dict[str, Any]], Any]
    """Builds the MCP notification with this `_meta`."""


def change_notification(event: ServerEvent) -> ChangeNotification:
    """The notification of an event, which is its own key."""
    return ChangeNotification(event, partial(event_to_notification, event))


@dataclass(eq=False)
class _Subscriber:
    """A stream, or a connection of the handshake protocol."""

    owner: str
    keys: set[Hashable]
    due: dict[Hashable, ChangeNotification] = field(default_factory=dict[Hashable, ChangeNotification])
    news: anyio.Event = field(default_factory=anyio.Event)

    async def deliver(self, send: Callable[[ChangeNotification], Awaitable[None]]) -> NoReturn:
        """Send notifications until cancelled. Each subscriber has a task for this, so that a client that does
        not read delays no other."""
        while True:
            await self.news.wait()
            self.news = anyio.Event()
            due, self.due = self.due, {}
            for notification in due.values():
                await send(notification)


class Subscriptions:
    """All streams and subscriptions. `watch` decides whether a client may subscribe to a resource."""

    def __init__(
        self,
        client_ids: ClientIds,
        changing: NotificationOptions,
        watch: Callable[[str, Context], Awaitable[bool]],
        extra: Mapping[str, FilterExtension],
    ) -> None:
        self._client_ids = client_ids
        self._watch = watch
        self.unwatch: Callable[[str], object] = lambda _: None
        """Called with a resource that no client is subscribed to any more."""
        self._extra = extra
        self._lists = {kind: event for kind, event in _LISTS.items() if getattr(changing, f"{kind}_changed")}
        self._streams: set[_Subscriber] = set()
        self._connected: dict[str, _Subscriber] = {}
        self._waiting: dict[tuple[Hashable, frozenset[str] | None], ChangeNotification] = {}
        self._last_sent = -INTERVAL

    def on_change(self, thing: ResourceRef, owners: frozenset[str], *, listed: bool) -> None:
        """Publish the resources that a change of the server's state affects."""
        kind, handle = thing
        if listed and kind in ("output", "job", "agent", "task"):
            self.publish(change_notification(ResourcesListChanged()), owners)
        if kind == "tools":
            # An upstream server that changed may have changed both.
            for event in (ToolsListChanged(), PromptsListChanged()):
                self.publish(change_notification(event))
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
        keys, event = self._connection(self._client_ids.id_for(context)).keys, ResourceUpdated(params.uri)
        if len({*keys, event}.difference(_LISTS.values())) > WATCHED:
            raise MCPError(mcp.INVALID_PARAMS, f"No more than {WATCHED} resources can be subscribed to.")
        if not await self._watch(params.uri, context):
            raise not_found(params.uri, context, "Such a resource has no change notifications.")
        keys.add(event)
        return mcp.EmptyResult()

    async def unsubscribe(self, context: Context, params: mcp.UnsubscribeRequestParams) -> mcp.EmptyResult:
        event = ResourceUpdated(params.uri)
        self._connection(self._client_ids.id_for(context)).keys.discard(event)
        self._release({event})
        return mcp.EmptyResult()

    async def listen(
        self, context: Context, params: mcp.SubscriptionsListenRequestParams
    ) -> mcp.SubscriptionsListenResult:
        """Send notifications until the client closes the stream."""
        if len(self._streams) >= STREAMS:
            raise MCPError(mcp.INTERNAL_ERROR, f"{STREAMS} streams are open already; close one.")
        owner = self._client_ids.id_for(context)
        honoured, keys = await self._honoured(params.notifications, context)
        meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: context.request_id}
        acknowledged = mcp.SubscriptionsAcknowledgedNotification(
            params=mcp.SubscriptionsAcknowledgedNotificationParams(notifications=honoured, _meta=meta)
        )
        # Registered before the acknowledgement is sent, so that no change in between is lost.
        stream = _Subscriber(owner, keys)
        self._streams.add(stream)
        try:
            await context.session.send_notification(acknowledged, context.request_id)
            await stream.deliver(
                lambda due: context.session.send_notification(due.message(meta), context.request_id)
            )
        finally:
            self._streams.discard(stream)
            self._release(stream.keys)

    async def _honoured(
        self, asked: mcp.SubscriptionFilter, context: Context
    ) -> tuple[mcp.SubscriptionFilter, set[Hashable]]:
        """The accepted part of a filter, and its keys."""
        owner = self._client_ids.id_for(context)
        kinds = [kind for kind in self._lists if getattr(asked, f"{kind}_list_changed")]
        given = dict.fromkeys(asked.resource_subscriptions or ())
        uris: list[str] = []
        with anyio.move_on_after(WATCH_SECONDS):
            for uri in given:
                if len(uris) < WATCHED and await self._watch(uri, context):
                    uris.append(uri)
        keys: set[Hashable] = {*(self._lists[kind] for kind in kinds), *map(ResourceUpdated, uris)}
        extra: dict[str, Any] = {f"{kind}_list_changed": True for kind in kinds}
        for name, value in (asked.model_extra or {}).items():
            if name in self._extra and (found := self._extra[name](value, owner)) is not None:
                extra[name] = found[0]
                keys.update(found[1])
        return mcp.SubscriptionFilter(resource_subscriptions=uris or None, **extra), keys

    def _release(self, keys: Collection[Hashable]) -> None:
        """A subscriber has left these."""
        used = {key for one in (*self._streams, *self._connected.values()) for key in one.keys}
        for key in keys:
            if isinstance(key, ResourceUpdated) and key not in used:
                self.unwatch(key.uri)

    def _flush(self) -> None:
        self._last_sent = asyncio.get_running_loop().time()
        waiting, self._waiting = self._waiting, {}
        connections = [self._connection(name) for name in self._client_ids.connections]
        for (key, owners), notification in waiting.items():
            for subscriber in (*self._streams, *connections):
                if key in subscriber.keys and (owners is None or subscriber.owner in owners):
                    subscriber.due[key] = notification
                    subscriber.news.set()

    def _connection(self, name: str) -> _Subscriber:
        """The subscriber of a handshake connection, which gets changes of lists unasked."""
        if (known := self._connected.get(name)) is not None:
            return known
        connection = self._client_ids.connections[name]

        async def send(due: ChangeNotification) -> None:
            wire = due.message({}).model_dump(by_alias=True, mode="json", exclude_none=True)
            await connection.notify(wire["method"], wire.get("params"))

        self._connected[name] = made = _Subscriber(name, set(self._lists.values()))
        task = asyncio.get_running_loop().create_task(made.deliver(send))
        connection.exit_stack.callback(task.cancel)
        connection.exit_stack.callback(lambda: self._release(self._connected.pop(name).keys))
        return made
