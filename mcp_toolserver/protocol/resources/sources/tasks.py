"""The tasks of the client on the board: their list, and each of them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mcp_types as mcp

from mcp_toolserver.capabilities.change_events import ChangeEvents
from mcp_toolserver.pipeline.call import Result
from mcp_toolserver.protocol.resources.source import Visitor, text

URI = "toolserver://tasks"
TEMPLATE = f"{URI}/{{id}}"

LIST_TOOL = "TaskList"
TOOL = "TaskGet"
"""The tools whose permission and rules apply."""

_JSON = "application/json"
_DESCRIPTION = "A task of the board: status, texts, dependencies and messages."


@dataclass(frozen=True, kw_only=True)
class BoardTasks:
    """Implements `Source`."""

    changes: ChangeEvents
    offered: Callable[[str], bool]
    """Whether the server has a tool of this name."""

    def listed(self, owner: str) -> Sequence[mcp.Resource]:
        """The list, and each task that was created or changed since the client connected."""
        tasks = mcp.Resource(
            name="tasks", uri=URI, description="Your tasks on the board, oldest first.", mime_type=_JSON
        )
        each = (
            mcp.Resource(name="task", uri=f"{URI}/{task}", description=_DESCRIPTION, mime_type=_JSON)
            for task in self.changes.of(owner, "task")
        )
        return [
            *([tasks] if self.offered(LIST_TOOL) else []),
            *(each if self.offered(TOOL) else ()),
        ]

    def templates(self) -> Sequence[mcp.ResourceTemplate]:
        """See `Source.templates`."""
        template = mcp.ResourceTemplate(
            name="task", uri_template=TEMPLATE, description=_DESCRIPTION, mime_type=_JSON
        )
        return [template] if self.offered(TOOL) else ()

    async def read(self, uri: str, visitor: Visitor) -> mcp.ReadResourceResult | None:
        """See `Source.read`."""
        if uri == URI and self.offered(LIST_TOOL):
            return _content(uri, await visitor.call(LIST_TOOL, {}), "tasks")
        task = uri.removeprefix(f"{URI}/")
        if task == uri or not self.offered(TOOL):
            return None
        return _content(uri, await visitor.call(TOOL, {"task_id": task}), "task")

    def watched(self, uri: str, owner: str) -> bool:
        """See `Source.watched`."""
        own = (f"{URI}/{task}" for task in self.changes.of(owner, "task"))
        return (uri == URI and self.offered(LIST_TOOL)) or (self.offered(TOOL) and uri in own)

    async def complete(self, _: str, __: str, value: str, visitor: Visitor) -> Sequence[str]:
        """See `Source.complete`."""
        return self.changes.of(visitor.owner, "task", value)


def _content(uri: str, result: Result, name: str) -> mcp.ReadResourceResult:
    assert result.data is not None
    return text(uri, json.dumps(result.data[name], indent=1, ensure_ascii=False), mime_type=_JSON)
