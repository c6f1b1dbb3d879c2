"""The todo lists of the client."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mcp_types as mcp

from mcp_toolserver.capabilities.change_events import ChangeEvents
from mcp_toolserver.capabilities.stored import TodoChange
from mcp_toolserver.errors import NotFound
from mcp_toolserver.pipeline.call import OutputOverride
from mcp_toolserver.protocol.resources.source import LARGEST, Visitor, text
from mcp_toolserver.tool_spec import Output, Runtime

URI = "toolserver://todos"

TOOL = "TodoWrite"
"""The tool whose permission and rules apply."""

_JSON = "application/json"


@dataclass(frozen=True, kw_only=True)
class TodoLists:
    """Implements `Source`."""

    changes: ChangeEvents
    offered: Callable[[str], bool]
    """Whether the server has a tool of this name."""

    def listed(self, _: str) -> Sequence[mcp.Resource]:
        """See `Source.listed`."""
        todos = mcp.Resource(
            name="todos",
            uri=URI,
            description="The todo lists that you created or changed since you connected.",
            mime_type=_JSON,
        )
        return [todos] if self.offered(TOOL) else ()

    def templates(self) -> Sequence[mcp.ResourceTemplate]:
        """None."""
        return ()

    async def read(self, uri: str, visitor: Visitor) -> mcp.ReadResourceResult | None:
        """See `Source.read`."""
        if uri != URI or not self.offered(TOOL):
            return None
        handles = self.changes.of(visitor.owner, "todos")
        if not handles:
            return text(URI, "[]", mime_type=_JSON)
        output_override = OutputOverride(run=lambda _, rt: _lists(handles, rt), output_bytes=LARGEST)
        found = await visitor.call(TOOL, {"action": "list", "list_id": handles[0]}, output_override)
        return text(URI, found.text, mime_type=_JSON)

    def watched(self, uri: str, _: str) -> bool:
        """See `Source.watched`."""
        return uri == URI and self.offered(TOOL)

    async def complete(self, _: str, __: str, ___: str, ____: Visitor) -> Sequence[str]:
        """See `Source.complete`."""
        raise AssertionError("there is nothing to fill in")


async def _lists(handles: Sequence[str], rt: Runtime) -> Output:
    found: list[TodoChange] = []
    for handle in handles:
        try:
            found.append(await rt.todos.change(handle, lambda todos: todos))
        except NotFound:
            # The store evicted it.
            continue
    return Output(json.dumps([_wire(one) for one in found], indent=1))


def _wire(found: TodoChange) -> dict[str, object]:
    todos = [
        {"id": todo.id, "content": todo.content, "status": todo.status, "priority": todo.priority}
        for todo in found.after.todos
    ]
    return {"list_id": found.handle, "todos": todos}
