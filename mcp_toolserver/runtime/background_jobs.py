"""Finds a background job by its handle: a command, an agent, a task of the board or an MCP task.

They share one id space. The prefix of a handle names the source of its job.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mcp_toolserver.capabilities.processes import JobQuery, JobSource, JobState
from mcp_toolserver.errors import NotFound
from mcp_toolserver.runtime.host_services import ServiceRequest

ProvideSource = Callable[[ServiceRequest], JobSource]
"""Returns the source of one kind of jobs for a call."""

_PROTOCOL_TASK = len("task_") + 32
"""Characters of the id of an MCP task; tasks of the board have shorter ones."""


class BackgroundJobs:
    """All background jobs of a server, by the prefix of their handles."""

    def __init__(self, sources: Mapping[str, ProvideSource]) -> None:
        self._sources = sources
        self.protocol_tasks: Callable[[str], JobSource] | None = None
        """Returns the MCP tasks of an owner; None before the first client that supports them."""

    def for_call(self, request: ServiceRequest) -> "CallJobs":
        """The jobs that a call may use."""
        return CallJobs(self, request)

    def source(self, handle: str, request: ServiceRequest) -> JobSource:
        """The source of the job with this handle. Raises: NotFound."""
        prefix = handle[: handle.find("_") + 1]
        if prefix == "task_" and len(handle) == _PROTOCOL_TASK and self.protocol_tasks is not None:
            return self.protocol_tasks(request.scope.owner)
        if prefix not in self._sources:
            raise NotFound(
                "No background job has this id. Use the id that bash, Agent or TaskCreate returned."
            )
        return self._sources[prefix](request)


@dataclass(frozen=True)
class CallJobs:
    """The background jobs of one call, of every kind. Implements `JobSource`."""

    jobs: BackgroundJobs
    request: ServiceRequest

    async def output(self, query: JobQuery) -> JobState:
        """See `JobSource.output`."""
        return await self.jobs.source(query.handle, self.request).output(query)

    async def stop(self, handle: str) -> JobState:
        """See `JobSource.stop`."""
        return await self.jobs.source(handle, self.request).stop(handle)
