"""Background commands: their list, and the end of the output of each."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mcp_types as mcp

from mcp_toolserver.capabilities.change_events import ChangeEvents
from mcp_toolserver.capabilities.processes import JobQuery, JobState
from mcp_toolserver.errors import NotFound
from mcp_toolserver.pipeline.call import OutputOverride
from mcp_toolserver.protocol.resources.source import LARGEST, Visitor, text
from mcp_toolserver.text.lines.terminal import as_on_terminal
from mcp_toolserver.text.shell.command_output import ending, lines
from mcp_toolserver.tool_spec import Output, Runtime

URI = "toolserver://jobs"
TEMPLATE = f"{URI}/{{id}}"

TOOL = "TaskOutput"
"""The tool whose permission and rules apply."""

_TAIL = 60_000
"""Maximum bytes of the end of the output."""


@dataclass(frozen=True, kw_only=True)
class BackgroundJobs:
    """Implements `Source`."""

    changes: ChangeEvents
    offered: Callable[[str], bool]
    """Whether the server has a tool of this name."""

    def listed(self, owner: str) -> Sequence[mcp.Resource]:
        """The list, and each command that the client started."""
        if not self.offered(TOOL):
            return ()
        return [
            mcp.Resource(
                name="jobs",
                uri=URI,
                description="Your commands in the background, and how each is doing.",
                mime_type="application/json",
            ),
            *(
                mcp.Resource(
                    name="job",
                    uri=f"{URI}/{handle}",
                    description="A command in the background: the end of its output.",
                    mime_type="text/plain",
                )
                for handle in self.changes.of(owner, "job")
            ),
        ]

    def templates(self) -> Sequence[mcp.ResourceTemplate]:
        """See `Source.templates`."""
        template = mcp.ResourceTemplate(
            name="job",
            uri_template=TEMPLATE,
            description="A command in the background: the end of its output.",
            mime_type="text/plain",
        )
        return [template] if self.offered(TOOL) else ()

    async def read(self, uri: str, visitor: Visitor) -> mcp.ReadResourceResult | None:
        """See `Source.read`."""
        if not self.offered(TOOL):
            return None
        if uri == URI:
            return await self._overview(visitor)
        handle = uri.removeprefix(f"{URI}/")
        if handle == uri:
            return None
        found = await visitor.call(TOOL, {"task_id": handle}, OutputOverride(run=_tail, output_bytes=LARGEST))
        return text(uri, found.text)

    def watched(self, uri: str, owner: str) -> bool:
        """The list and its commands can change."""
        own = (f"{URI}/{handle}" for handle in self.changes.of(owner, "job"))
        return self.offered(TOOL) and (uri == URI or uri in own)

    async def complete(self, _: str, __: str, value: str, visitor: Visitor) -> Sequence[str]:
        """See `Source.complete`."""
        return self.changes.of(visitor.owner, "job", value)

    async def _overview(self, visitor: Visitor) -> mcp.ReadResourceResult:
        handles = self.changes.of(visitor.owner, "job")
        if not handles:
            return text(URI, "[]", mime_type="application/json")
        output_override = OutputOverride(run=lambda _, rt: _states(handles, rt), output_bytes=LARGEST)
        found = await visitor.call(TOOL, {"task_id": handles[0]}, output_override)
        return text(URI, found.text, mime_type="application/json")


async def _states(handles: Sequence[str], rt: Runtime) -> Output:
    states: list[JobState] = []
    for handle in handles:
        try:
            states.append(await rt.jobs.output(JobQuery(handle=handle, limit=0)))
        except NotFound:
            # Its record has expired since.
            continue
    return Output(json.dumps([_summary(state) for state in states], indent=1))


def _summary(state: JobState) -> dict[str, object]:
    return {
        "id": state.handle,
        "running": state.running,
        "status": ending(state),
        "bytes": state.total,
    }


async def _tail(args: Any, rt: Runtime) -> Output:
    state = await rt.jobs.output(JobQuery(handle=args.task_id, limit=0))
    start = max(0, state.total - _TAIL)
    return _shown(await rt.jobs.output(JobQuery(handle=args.task_id, offset=start, limit=_TAIL)))


def _shown(state: JobState) -> Output:
    """Decode; the first character may be cut in two."""
    printed = state.text.lstrip("\ufffd") if state.start else state.text
    left_out = f"[{state.start} bytes before; TaskOutput reads them]\n" if state.start else ""
    return Output(f"{left_out}{lines(as_on_terminal(printed))}[{ending(state)}]")
