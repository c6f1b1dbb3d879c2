"""The agents of the client: the conversation of each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mcp_types as mcp

from mcp_toolserver.capabilities.change_events import ChangeEvents
from mcp_toolserver.pipeline.call import OutputOverride
from mcp_toolserver.protocol.resources.source import LARGEST, Visitor, text
from mcp_toolserver.tool_spec import Output, Runtime

URI = "toolserver://agents"
TEMPLATE = f"{URI}/{{id}}"

TOOL = "Agent"
"""The tool whose permission and rules apply."""

_JSON = "application/json"
_DESCRIPTION = "An agent that you started: its state and its conversation."


@dataclass(frozen=True, kw_only=True)
class AgentTranscripts:
    """Implements `Source`."""

    changes: ChangeEvents
    offered: Callable[[str], bool]
    """Whether the server has a tool of this name."""

    def listed(self, owner: str) -> Sequence[mcp.Resource]:
        """Each agent that the client started."""
        if not self.offered(TOOL):
            return ()
        return [
            mcp.Resource(name="agent", uri=f"{URI}/{handle}", description=_DESCRIPTION, mime_type=_JSON)
            for handle in self.changes.of(owner, "agent")
        ]

    def templates(self) -> Sequence[mcp.ResourceTemplate]:
        """See `Source.templates`."""
        template = mcp.ResourceTemplate(
            name="agent", uri_template=TEMPLATE, description=_DESCRIPTION, mime_type=_JSON
        )
        return [template] if self.offered(TOOL) else ()

    async def read(self, uri: str, visitor: Visitor) -> mcp.ReadResourceResult | None:
        """See `Source.read`."""
        handle = uri.removeprefix(f"{URI}/")
        if handle == uri or not self.offered(TOOL):
            return None

        async def run(_: object, rt: Runtime) -> Output:
            return Output(await rt.agents.transcript(handle))

        arguments = {"description": "transcript", "prompt": "transcript", "resume": handle}
        found = await visitor.call(TOOL, arguments, OutputOverride(run=run, output_bytes=LARGEST))
        return text(uri, found.text, mime_type=_JSON)

    def watched(self, uri: str, owner: str) -> bool:
        """Each agent changes with its steps."""
        handle = uri.removeprefix(f"{URI}/")
        return self.offered(TOOL) and handle != uri and handle in self.changes.of(owner, "agent")

    async def complete(self, _: str, __: str, value: str, visitor: Visitor) -> Sequence[str]:
        """See `Source.complete`."""
        return self.changes.of(visitor.owner, "agent", value)
