"""Notifies the subscribers of a task with the result of `tasks/get` whenever it changes."""

from collections.abc import Collection, Hashable
from functools import partial
from typing import Any

import mcp_types as mcp

from mcp_toolserver.protocol.resources.feature import ResourceFeature
from mcp_toolserver.protocol.tasks.request import LISTENED
from mcp_toolserver.protocol.tasks.task import Wire
from mcp_toolserver.protocol.tasks.tasks import Tasks
from mcp_toolserver.text.json_values import is_list

MOST = 64
"""Maximum tasks of one stream."""


def connect(tasks: Tasks, feature: ResourceFeature) -> None:
    """Let clients subscribe to `tasks` through `subscriptions/listen`."""

    def publish(state: Wire) -> None:
        # Nobody has subscribed yet.
        if feature.is_in_use:
            from mcp_toolserver.protocol.resources.subscriptions import ChangeNotification

            feature.publish(ChangeNotification((LISTENED, state["taskId"]), partial(_notification, state)))

    def honoured(asked: object, owner: str) -> tuple[list[str], Collection[Hashable]] | None:
        """The running tasks among `asked`; publishes the state of each at once."""
        running = [tasks.running(one, owner) for one in asked] if is_list(asked) else []
        found = {str(state["taskId"]): state for state in running if state is not None}
        names = list(found)[:MOST]
        for name in names:
            publish(found[name])
        return (names, [(LISTENED, name) for name in names]) if names else None

    tasks.changed = publish
    feature.extra[LISTENED] = honoured


def _notification(state: Wire, meta: dict[str, Any]) -> "mcp.Notification[dict[str, Any], str]":
    return mcp.Notification[dict[str, Any], str](
        method="notifications/tasks", params={**state, "_meta": meta}
    )
