"""Finds a background job by its handle: a command, an agent, a task of the board or an MCP task.

They share one id space. The prefix of a handle names the source of its job.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mcp_toolserver.capabilities.processes import JobQuery, JobSource, JobState
from mcp_toolserver.errors import NotFound
from mcp_toolserver.runtime.host_services import Provide, ServiceRequest

_PROTOCOL_TASK = len("task_") + 32
"""Characters of the id of an MCP task; tasks of the board have shorter ones."""


@dataclass
class BackgroundJobs:
    """All background jobs of a server."""

    sources: Mapping[str, Provide]
    """What returns the `JobSource` of a call, by the prefix of the handles of its jobs."""
    protocol_tasks: Callable[[str], JobSource] | None = None
    """Returns the MCP tasks of an owner; None before the first client that supports them."""


@dataclass(frozen=True)
class CallJobs:
    """The background jobs of one call, of every kind. Implements `JobSource`."""

    jobs: BackgroundJobs
    request: ServiceRequest

    async def output(self, query: JobQuery) -> JobState:
        """See `JobSource.output`."""
        return await self._source(query.handle).output(query)

    async def stop(self, handle: str) -> JobState:
        """See `JobSource.stop`."""
        return await self._source(handle).stop(handle)

    def _source(self, handle: str) -> JobSource:
        """The source of the job with this handle. Raises: NotFound."""
        prefix, jobs = handle[: handle.find("_") + 1], self.jobs
        if prefix == "task_" and len(handle) == _PROTOCOL_TASK and jobs.protocol_tasks is not None:
            return jobs.protocol_tasks(self.request.scope.owner)
        if prefix not in jobs.sources:
            raise NotFound(
                "No background job has this id. Use the id that bash, Agent or TaskCreate returned."
            )
        source = jobs.sources[prefix](self.request)
        assert isinstance(source, JobSource)
        return source
