"""Running commands in containers."""

from dataclasses import dataclass
from typing import Protocol

from mcp_toolserver.capabilities.call_scope import Report
from mcp_toolserver.capabilities.processes import JobState


@dataclass(frozen=True, kw_only=True)
class Contained:
    """The result of a command in a container."""

    state: JobState
    on_host: str = ""
    """Why the command ran on this machine instead, if the operator allows that; empty if it did not."""


class Containers(Protocol):
    """Runs commands in containers. Each gets a new container, which is removed afterwards."""

    async def run(self, script: str, timeout: float, report: Report) -> Contained:
        """Run to the end, or hand over to the background, as `Processes.run` does; `timeout` is in seconds.

        Raises:
            Unavailable: no container could be started, and nothing was run.
        """
        ...
