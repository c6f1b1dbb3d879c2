"""Tells those who listen for a task how it is going: what `tasks/get` would say, whenever that changes."""

from collections.abc import Collection, Hashable
from functools import partial
from typing import Any

import mcp_types as mcp

from mcp_toolserver.protocol.beside import Beside
from mcp_toolserver.protocol.task import Wire
from mcp_toolserver.protocol.task_feature import LISTENED
from mcp_toolserver.protocol.tasks import Tasks
from mcp_toolserver.runtime.sandbox.wire import is_list

MOST = 64
"""Tasks that one stream hears of."""


def connect(tasks: Tasks, beside: Beside) -> None:
    """Let clients listen for `tasks` as they do for what is `beside` tools."""

    def tell(told: Wire) -> None:
        # Until somebody has listened, there is nobody to tell.
        if beside.is_open:
            from mcp_toolserver.protocol.notices import Notice

            beside.tell(Notice((LISTENED, told["taskId"]), partial(_notification, told)))

    def honoured(asked: object, _: str) -> tuple[list[str], Collection[Hashable]] | None:
        """Those that run, of which there will be news; what is known of each is told at once."""
        running = [tasks.running(one) for one in asked] if is_list(asked) else []
        found = {str(told["taskId"]): told for told in running if told is not None}
        names = list(found)[:MOST]
        for name in names:
            tell(found[name])
        return (names, [(LISTENED, name) for name in names]) if names else None

    tasks.changed = tell
    beside.further[LISTENED] = honoured


def _notification(told: Wire, meta: dict[str, Any]) -> "mcp.Notification[dict[str, Any], str]":
    return mcp.Notification[dict[str, Any], str](method="notifications/tasks", params={**told, "_meta": meta})
