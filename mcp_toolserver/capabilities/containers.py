"""Commands in containers."""

from dataclasses import dataclass
from typing import Protocol

from mcp_toolserver.capabilities.call_scope import Report
from mcp_toolserver.capabilities.processes import JobState


@dataclass(frozen=True, kw_only=True)
class Contained:
    """A command that was to run in a container."""

    state: JobState
    on_host: str = ""
    """Why it ran on this machine instead, which only the operator allows; empty when it did not."""


class Containers(Protocol):
    """Starting commands in containers. Each gets a new one, which goes with it."""

    async def run(self, script: str, timeout: float, report: Report) -> Contained:
        """Run to the end, or hand over to the background, as `Processes.run` does; `timeout` is in seconds.

        Raises:
            Unavailable: no container could be started, and nothing was run.
        """
        ...
