"""Loads the providers of capabilities on first use, so that start-up does not wait for their imports.

`Capability.provider` names the module. Its function `provider(context)` returns a `Provider`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from anyio import create_task_group

from mcp_toolserver.capabilities.processes import JobSource

if TYPE_CHECKING:
    from mcp_toolserver.capabilities.change_events import ChangeEvents
    from mcp_toolserver.capabilities.model import Model
    from mcp_toolserver.capabilities.permissions import Capability, HostFacts
    from mcp_toolserver.pipeline.narrowings import Narrowings
    from mcp_toolserver.pipeline.nested_calls import NestedCalls
    from mcp_toolserver.pipeline.rights import Rights
    from mcp_toolserver.runtime.agents.spending import AgentLimits
    from mcp_toolserver.runtime.background import Background
    from mcp_toolserver.runtime.background_jobs import ProvideSource
    from mcp_toolserver.runtime.executables import HostExecutables
    from mcp_toolserver.runtime.files.workspace import Workspace
    from mcp_toolserver.runtime.host_services import Provide, ServiceRequest
    from mcp_toolserver.runtime.processes.broker_client import Broker
    from mcp_toolserver.runtime.processes.commands import Commands
    from mcp_toolserver.runtime.processes.output_capture import Sink
    from mcp_toolserver.runtime.sandbox.broker.limit_settings import CommandBounds
    from mcp_toolserver.runtime.web.options import WebOptions
    from mcp_toolserver.runtime.worktrees.entered import EnteredWorktrees
    from mcp_toolserver.stores.database import Database


@dataclass(frozen=True, kw_only=True)
class ProviderContext:
    """What providers are built from."""

    facts: HostFacts
    programs: HostExecutables
    broker_or_none: Broker | None
    """None where the server cannot start programs; no capability that needs it is available there."""
    commands_or_none: Commands | None
    outputs: Sink
    roots: tuple[str, ...]
    may_hide: bool
    """Whether rules hide files, so that results have to be filtered."""
    explain: Callable[[str, int | None], tuple[str, ...]]
    """Explains what the sandbox refused, from the output of a command."""
    bounds: CommandBounds
    container_image: str
    git_author: str
    """The operator's `Name <email>` for commits; empty for that of the user's git configuration."""
    web: WebOptions
    skill_folders: tuple[Workspace, ...]
    """The folders outside the roots that the operator named as folders of skills."""
    state: str
    """The state folder."""
    database: Database
    workspace: Workspace
    worktrees: EnteredWorktrees
    changes: ChangeEvents
    narrowings: Narrowings
    background: Background
    calls_of: Callable[[Rights, str, str], NestedCalls]
    """Stored rights, the owner and a name for the records → calls without a client."""
    join_session: Callable[[str, str], None]
    """Lets the commands of an owner share the session of another; see `Sessions.join`."""
    end_owner: Callable[[str], Awaitable[None]]
    """Ends all that the calls of an owner, who will not return, have started; waits until it is gone."""
    agent_limits: AgentLimits
    service: Callable[[Capability], Provide]
    """The service of another capability, for a call that has it."""
    model: Callable[[], Model | None] = lambda: None
    """The operator's model; None without one."""

    @property
    def broker(self) -> Broker:
        """The broker that starts programs."""
        assert self.broker_or_none is not None
        return self.broker_or_none

    @property
    def commands(self) -> Commands:
        """The commands of this server."""
        assert self.commands_or_none is not None
        return self.commands_or_none


@dataclass(frozen=True, kw_only=True)
class Provider:
    """Provides the service of one or more capabilities for as long as the server runs."""

    provide: Provide
    forget: Callable[[str], None] | None = None
    """Drops what belongs to an owner who does not come back."""
    forgotten: Callable[[], Coroutine[None, None, None]] | None = None
    """Waits until what `forget` dropped has ended, where that takes time."""
    aclose: Callable[[], Coroutine[None, None, None]] | None = None
    resume: Callable[[], None] | None = None
    """Takes up the work that ended servers left."""
    needs_commands_to_close: bool = False
    """Whether it closes before the commands are killed."""
    shutdown_timeout: Callable[[], float] | None = None
    """Seconds that closing may take, where that is longer than usual."""


class LazyProviders:
    """All providers of one server."""

    def __init__(self, context: ProviderContext) -> None:
        self._context = context
        self._loaded: dict[str, Provider] = {}

    def provide(self, capability: Capability) -> Provide:
        """A function that loads the provider of `capability` with the first call that needs it."""

        def provide(request: ServiceRequest) -> object:
            return self.load(capability.provider).provide(request)

        return provide

    def source(self, module: str) -> ProvideSource:
        """A function that returns the background jobs that the provider in `module` runs."""

        def provide(request: ServiceRequest) -> JobSource:
            source = self.load(module).provide(request)
            assert isinstance(source, JobSource)
            return source

        return provide

    def load(self, module: str) -> Provider:
        """The provider in `module`, which is below `runtime/`."""
        if module not in self._loaded:
            make: Callable[[ProviderContext], Provider]
            make = import_module(f"mcp_toolserver.runtime.{module}").provider
            self._loaded[module] = make(self._context)
        return self._loaded[module]

    def resume(self, module: str) -> None:
        """Let the provider in `module` take up the work that ended servers left."""
        made = self.load(module)
        assert made.resume is not None
        made.resume()

    @property
    def shutdown_timeout(self) -> float:
        """The longest that closing a provider may take; 0 where none is slow."""
        slow = (made.shutdown_timeout() for made in self._loaded.values() if made.shutdown_timeout)
        return max(slow, default=0.0)

    def forget(self, owner: str) -> None:
        """Drop what belongs to an owner who does not come back."""
        for made in self._loaded.values():
            if made.forget is not None:
                made.forget(owner)

    async def forgotten(self) -> None:
        """Wait until what `forget` dropped has ended."""
        async with create_task_group() as tasks:
            for made in self._loaded.values():
                if made.forgotten is not None:
                    tasks.start_soon(made.forgotten)

    async def aclose(self, *, before_commands: bool) -> None:
        """Close the providers that were loaded, at the same time."""
        async with create_task_group() as tasks:
            for made in self._loaded.values():
                if made.aclose is not None and made.needs_commands_to_close == before_commands:
                    tasks.start_soon(made.aclose)
