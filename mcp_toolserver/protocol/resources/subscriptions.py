"""Telling clients of changes, in both eras: what happened, never what it is now; they read it if they care.

A client with a handshake is told when a list changes, and of resources that it subscribed to. One without
opens a stream (`subscriptions/listen`), which says first what of that which was asked for it will hear: only
what can change, and what may be read. Changes that follow each other closely are told once.
"""

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import mcp_types as mcp
from mcp.server.context import ServerRequestContext
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

from mcp_toolserver.changes import Thing
from mcp_toolserver.protocol.owners import Owners
from mcp_toolserver.protocol.resources import not_found
from mcp_toolserver.protocol.sources import jobs, status, todos

STREAMS = 256
"""Streams that are open at once."""

WATCHED = 64
"""Resources that one stream or connection hears of."""

SOON = 0.02
"""Seconds in which more may follow before the first is told."""

INTERVAL = 0.25
"""Seconds between two tellings."""

_LISTS = (ToolsListChanged(), PromptsListChanged(), ResourcesListChanged())

_Context = ServerRequestContext[Any, Any]

Further = Callable[[object, str], tuple[Any, Collection[Hashable]] | None]
"""Reads a key of a filter that the core protocol does not know, for a caller: what of it is acknowledged, and
the keys of the notices that it stands for; None for nothing."""


@dataclass(frozen=True)
class Notice:
    """Something to tell those who asked for its key."""

    key: Hashable
    message: Callable[[dict[str, Any]], Any]
    """Makes the notification, with this `_meta`."""


def noticed(event: ServerEvent) -> Notice:
    """A change of a list or a resource, which is its own key."""
    return Notice(event, partial(event_to_notification, event))


@dataclass(eq=False)
class _Stream:
    owner: str
    keys: frozenset[Hashable]
    due: dict[Hashable, Notice] = field(default_factory=dict[Hashable, Notice])
    news: anyio.Event = field(default_factory=anyio.Event)

    async def taken(self) -> list[Notice]:
        """What is due, once there is something."""
        await self.news.wait()
        return self._all()

    def _all(self) -> list[Notice]:
        found = list(self.due.values())
        self.due.clear()
        self.news = anyio.Event()
        return found


class Notices:
    """All who listen. `watched` says whether a caller may hear of a resource."""

    def __init__(
        self,
        owners: Owners,
        changing: NotificationOptions,
        watched: Callable[[str, str], bool],
        further: Mapping[str, Further],
    ) -> None:
        self._owners = owners
        self._watched = watched
        self._further = further
        flags = (changing.tools_changed, changing.prompts_changed, changing.resources_changed)
        self._lists = frozenset(event for event, changes in zip(_LISTS, flags, strict=True) if changes)
        self._streams: set[_Stream] = set()
        self._subscribed: dict[str, set[str]] = {}
        self._waiting: dict[tuple[Hashable, frozenset[str] | None], Notice] = {}
        self._told = -INTERVAL
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._due: dict[str, dict[Hashable, Notice]] = {}

    def heard(self, thing: Thing, owners: frozenset[str], *, listed: bool) -> None:
        """Tell what a change of the server's state means for resources; see `changes.Hear`."""
        kind, handle = thing
        if listed and kind in ("output", "job"):
            self.tell(noticed(ResourcesListChanged()), owners)
        match kind:
            case "job":
                self.tell(noticed(ResourceUpdated(jobs.URI)), owners)
                self.tell(noticed(ResourceUpdated(f"{jobs.URI}/{handle}")))
            case "todos":
                self.tell(noticed(ResourceUpdated(todos.URI)), owners)
            case "preferences":
                self.tell(noticed(ResourceUpdated(status.CONFIG_URI)))
            case _:
                """What was kept of an output never changes."""

    def tell(self, notice: Notice, owners: frozenset[str] | None = None) -> None:
        """Tell all who asked for it, or those of them that are among `owners`."""
        if not self._waiting:
            loop = asyncio.get_running_loop()
            loop.call_later(max(SOON, self._told + INTERVAL - loop.time()), self._flush)
        self._waiting[notice.key, owners] = notice

    async def subscribe(self, context: _Context, params: mcp.SubscribeRequestParams) -> mcp.EmptyResult:
        """Of the handshake era: hear of one resource from now on."""
        owner = self._owners.of(context)
        if not self._watched(params.uri, owner):
            raise not_found(params.uri, context, "No changes of such a resource are told.")
        uris = self._subscribed.setdefault(owner, set())
        if len(uris) >= WATCHED and params.uri not in uris:
            raise MCPError(mcp.INVALID_PARAMS, f"No more than {WATCHED} resources can be subscribed to.")
        uris.add(params.uri)
        return mcp.EmptyResult()

    async def unsubscribe(self, context: _Context, params: mcp.UnsubscribeRequestParams) -> mcp.EmptyResult:
        """No longer hear of one."""
        self._subscribed.get(self._owners.of(context), set()).discard(params.uri)
        return mcp.EmptyResult()

    async def listen(
        self, context: _Context, params: mcp.SubscriptionsListenRequestParams
    ) -> mcp.SubscriptionsListenResult:
        """A stream of notices, for as long as the client holds it open."""
        if len(self._streams) >= STREAMS:
            raise MCPError(mcp.INTERNAL_ERROR, f"{STREAMS} streams are open already; close one.")
        owner = self._owners.of(context)
        honoured, keys = self._honoured(params.notifications, owner)
        meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: context.request_id}
        acknowledged = mcp.SubscriptionsAcknowledgedNotification(
            params=mcp.SubscriptionsAcknowledgedNotificationParams(notifications=honoured, _meta=meta)
        )
        # What happens while the acknowledgement is on its way is told after it.
        stream = _Stream(owner, keys)
        self._streams.add(stream)
        try:
            await context.session.send_notification(acknowledged, context.request_id)
            while True:
                for notice in await stream.taken():
                    await context.session.send_notification(notice.message(meta), context.request_id)
        finally:
            self._streams.discard(stream)

    def _honoured(
        self, asked: mcp.SubscriptionFilter, owner: str
    ) -> tuple[mcp.SubscriptionFilter, frozenset[Hashable]]:
        """What of that which is asked for can be told, and its keys."""
        wanted = (asked.tools_list_changed, asked.prompts_list_changed, asked.resources_list_changed)
        lists = [event for event, is_wanted in zip(_LISTS, wanted, strict=True) if is_wanted]
        tools, prompts, resources = ((event in self._lists and event in lists) or None for event in _LISTS)
        given = dict.fromkeys(asked.resource_subscriptions or ())
        uris = [uri for uri in given if self._watched(uri, owner)][:WATCHED]
        keys: set[Hashable] = {*self._lists.intersection(lists), *map(ResourceUpdated, uris)}
        further: dict[str, Any] = {}
        for name, value in (asked.model_extra or {}).items():
            if name in self._further and (found := self._further[name](value, owner)) is not None:
                further[name] = found[0]
                keys.update(found[1])
        honoured = mcp.SubscriptionFilter(
            tools_list_changed=tools,
            prompts_list_changed=prompts,
            resources_list_changed=resources,
            resource_subscriptions=uris or None,
            **further,
        )
        return honoured, frozenset(keys)

    def _flush(self) -> None:
        self._told = asyncio.get_running_loop().time()
        waiting, self._waiting = self._waiting, {}
        for gone in self._subscribed.keys() - self._owners.connections.keys():
            del self._subscribed[gone]
        for (key, owners), notice in waiting.items():
            for stream in self._streams:
                if key in stream.keys and (owners is None or stream.owner in owners):
                    stream.due[key] = notice
                    stream.news.set()
            for name in self._listening(key):
                if owners is None or name in owners:
                    self._send_soon(name, notice)

    def _listening(self, key: Hashable) -> Iterator[str]:
        """Connections with a handshake that are to hear of it."""
        if key in self._lists:
            yield from self._owners.connections
        elif isinstance(key, ResourceUpdated):
            yield from (name for name, uris in self._subscribed.items() if key.uri in uris)

    def _send_soon(self, name: str, notice: Notice) -> None:
        """One task for each connection: one that does not read holds up no other."""
        self._due.setdefault(name, {})[notice.key] = notice
        if name not in self._sending:
            self._sending[name] = task = asyncio.get_running_loop().create_task(self._send(name))
            task.add_done_callback(lambda _: self._sent(name))

    def _sent(self, name: str) -> None:
        del self._sending[name]

    async def _send(self, name: str) -> None:
        connection = self._owners.connections[name]
        while due := self._due.pop(name, None):
            for notice in due.values():
                told = notice.message({}).model_dump(by_alias=True, mode="json", exclude_none=True)
                await connection.notify(told["method"], told.get("params"))
