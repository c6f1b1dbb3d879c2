"""Telling how tasks go, to streams that asked for them by their ids."""

from typing import Any, Literal

from pydantic import BaseModel

from mcp_toolserver.protocol.notices import Notice
from mcp_toolserver.protocol.task import Wire, key


class _TaskNotification(BaseModel):
    method: Literal["notifications/tasks"] = "notifications/tasks"
    params: dict[str, Any]


def notice(told: Wire) -> Notice:
    """How a task is going, as `tasks/get` says it."""
    return Notice(key(str(told["taskId"])), lambda meta: _TaskNotification(params={**told, "_meta": meta}))
