"""The table of providers: what gives each call the service of a capability, such as `rt.git`.

Each is built with the first call that needs it, and imports what it needs then, so that start-up waits for
none of them.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from anyio import create_task_group

from mcp_toolserver.capabilities.permissions import DESKTOP, Capability, Permission
from mcp_toolserver.capabilities.processes import JobQuery, JobSource, JobState, MessageTarget
from mcp_toolserver.errors import NotFound, ToolError, Unavailable
from mcp_toolserver.policy.rules import Request
from mcp_toolserver.text.shell.words import simple_parts

if TYPE_CHECKING:
    from mcp_toolserver.capabilities.change_events import ChangeEvents
    from mcp_toolserver.capabilities.model import Model
    from mcp_toolserver.capabilities.permissions import HostFacts
    from mcp_toolserver.pipeline.narrowings import Narrowings
    from mcp_toolserver.pipeline.nested_calls import NestedCalls
    from mcp_toolserver.runtime.agents.spending import AgentLimits
    from mcp_toolserver.runtime.background import Background
    from mcp_toolserver.runtime.executables import HostExecutables
    from mcp_toolserver.runtime.files.workspace import Entered, Workspace
    from mcp_toolserver.runtime.git.repository import RepositoryAccess
    from mcp_toolserver.runtime.git.runner import Git
    from mcp_toolserver.runtime.host_services import Provide, ServiceRequest
    from mcp_toolserver.runtime.plan.plan_modes import PlanModes
    from mcp_toolserver.runtime.processes.broker_client import Broker
    from mcp_toolserver.runtime.processes.commands import CallCommands, Commands
    from mcp_toolserver.runtime.sandbox.broker.limit_settings import CommandBounds
    from mcp_toolserver.runtime.search.search import Ripgrep
    from mcp_toolserver.runtime.tasks.runner import TaskRunner
    from mcp_toolserver.runtime.web.options import WebOptions
    from mcp_toolserver.stores.database import Database
    from mcp_toolserver.stores.saved_outputs import OutputStore

_REMOVE_TIMEOUT = 10.0
"""Seconds for a container engine to remove containers, which outlive their client."""


@dataclass(frozen=True, kw_only=True)
class ProviderContext:
    facts: HostFacts
    programs: HostExecutables
    broker_or_none: Broker | None
    """None where the server cannot start programs; no capability that needs it is available there."""
    lower_broker: Callable[[Permission], Broker] | None
    """The broker of a mode below that of the server, where the server's own confines no command."""
    commands_or_none: Commands | None
    outputs: OutputStore
    roots: tuple[str, ...]
    may_hide: bool
    """Whether rules hide files, so that results have to be filtered."""
    explain: Callable[[str, int | None, bool], tuple[str, ...]]
    """Explains what the sandbox refused, from the output of a command."""
    bounds: CommandBounds
    container_image: str
    git_author: str
    """The operator's `Name <email>` for commits; empty for that of the user's git configuration."""
    ssh_agent: Mapping[str, str]
    """The variables by which ssh finds the user's agent."""
    web: WebOptions
    skill_folders: tuple[Workspace, ...]
    restricts_skills: bool
    """Whether `allowed-tools` of the skills in those takes rights."""
    """The folders outside the roots that the operator named as folders of skills."""
    database: Database
    decided: Mapping[str, str]
    """The operator's settings that a caller may read, by the names of the caller's own preferences."""
    user: str
    """The name whose token all callers have; empty without named tokens."""
    workspace: Workspace
    worktrees: dict[str, Entered]
    plans: PlanModes
    changes: ChangeEvents
    narrowings: Narrowings
    background: Background
    calls_of: Callable[[str, str, str], NestedCalls]
    """Stored rights, the owner and a name for the records → calls without a client. Raises: Unavailable."""
    join_session: Callable[[str, str], None]
    """Lets the commands of an owner share the session of another; see `Sessions.join`."""
    end_owner: Callable[[str], Awaitable[None]]
    """Ends all that the calls of an owner, who will not return, have started; waits until it is gone."""
    agent_limits: AgentLimits
    model: Callable[[], Model | None]
    """The operator's model; None without one."""
    model_names: tuple[str, ...]
    """The names of the operator's models, the general one first; then the types for which they are."""

    @cached_property
    def runner(self) -> TaskRunner:
        """What runs tasks and the runs of schedules."""
        from mcp_toolserver.runtime.tasks.runner import TaskRunner

        return TaskRunner(self)

    @property
    def broker(self) -> Broker:
        assert self.broker_or_none is not None
        return self.broker_or_none

    @property
    def commands(self) -> Commands:
        assert self.commands_or_none is not None
        return self.commands_or_none

    def git(self) -> Git:
        from mcp_toolserver.runtime.git.runner import Git
        from mcp_toolserver.runtime.processes.helper_launcher import Programs

        assert self.programs.git is not None
        return Git(Programs(self.broker), self.programs.git, os.path.expanduser("~"))

    def search(self) -> Callable[[Workspace], Ripgrep] | None:
        """A function that returns the search of a workspace; None without ripgrep."""
        from mcp_toolserver.runtime.processes.helper_launcher import Programs
        from mcp_toolserver.runtime.search.search import Ripgrep

        if (ripgrep := self.programs.ripgrep) is None:
            return None
        programs, landlocked = Programs(self.broker), self.broker.proof.helpers == "landlock"
        return lambda workspace: Ripgrep(
            launcher=programs,
            workspace=workspace,
            program=ripgrep,
            may_hide=self.may_hide,
            landlocked=landlocked,
        )


@dataclass(frozen=True, kw_only=True)
class Provider:
    """Provides the service of one or more capabilities for as long as the server runs."""

    provide: Provide
    forget: Callable[[str], None] | None = None
    """Drops what belongs to an owner who does not come back."""
    forgotten: Callable[[], Coroutine[None, None, None]] | None = None
    """Waits until what `forget` dropped has ended, where that takes time."""
    aclose: Callable[[], Coroutine[None, None, None]] | None = None
    needs_commands_to_close: bool = False
    """Whether it closes before the commands are killed."""
    shutdown_timeout: Callable[[], float] | None = None
    """Seconds that closing may take, where that is longer than usual."""


def _process(context: ProviderContext) -> Provider:
    commands, lower_broker = context.commands, context.lower_broker

    def provide(request: ServiceRequest) -> CallCommands:
        usual = None if request.host.is_outside else context.facts.commands_in
        modes = [mode for mode in (request.host.lowered_to, usual) if mode is not None]
        broker = lower_broker(min(modes)) if lower_broker and modes else None
        return commands.for_call(request.workspace, request.scope, broker)

    return Provider(provide=provide)


def _powershell(context: ProviderContext) -> Provider:
    from mcp_toolserver.runtime.which import powershell_start

    assert context.programs.powershell is not None
    start = powershell_start(context.programs.powershell)
    return Provider(provide=lambda _: start)


def _sessions(context: ProviderContext) -> Provider:
    from mcp_toolserver.runtime.repl.sessions import CallSessions, Interpreters

    sessions = Interpreters(context.broker, context.outputs, explain=context.explain)
    return Provider(
        provide=lambda request: CallSessions(sessions, request.workspace, request.scope.owner),
        forget=sessions.forget,
        forgotten=sessions.forgotten,
        aclose=sessions.aclose,
    )


def _containers(context: ProviderContext) -> Provider:
    from mcp_toolserver.runtime.containers.containers import CallContainers, Containers, Engine

    facts, program = context.facts, context.programs.engine
    assert program is not None
    engine = Engine(
        program=program,
        image=context.container_image,
        network=facts.network == "commands",
        processes=context.bounds.processes,
        memory=context.bounds.memory,
        user=f"{os.getuid()}:{os.getgid()}",
    )
    containers = Containers(context.broker, engine, failover=facts.containers == "failover")

    def provide(request: ServiceRequest) -> CallContainers:
        workspace = request.workspace
        call = replace(context.commands.for_call(workspace, request.scope), is_elsewhere=True)
        return CallContainers(containers, call, next(iter(workspace.roots), ""))

    return Provider(
        provide=provide,
        aclose=containers.aclose,
        needs_commands_to_close=True,
        shutdown_timeout=lambda: _REMOVE_TIMEOUT if containers.live or containers.removing else 0.0,
    )


def _search(context: ProviderContext) -> Provider:
    search = context.search()
    assert search is not None, "the capability is not available without ripgrep"
    return Provider(provide=lambda request: search(request.workspace))


def _access(context: ProviderContext) -> Callable[[ServiceRequest], RepositoryAccess]:
    """A function that returns what a call sees of repositories."""
    from mcp_toolserver.runtime.git.repository import RepositoryAccess

    git = context.git()
    return lambda request: RepositoryAccess(git=git, workspace=request.workspace, may_hide=context.may_hide)


def _git(context: ProviderContext) -> Provider:
    from mcp_toolserver.runtime.git.git import GitReader

    access = _access(context)
    return Provider(provide=lambda request: GitReader(access=access(request), scope=request.scope))


def _git_write(context: ProviderContext) -> Provider:
    from mcp_toolserver.runtime.git.commit import GitWriter

    access = _access(context)
    return Provider(
        provide=lambda request: GitWriter(
            repositories=access(request), scope=request.scope, author=context.git_author
        )
    )


def _clones(context: ProviderContext) -> Provider:
    from mcp_toolserver.runtime.git.clone import GitCloner
    from mcp_toolserver.runtime.web.guard import Guard

    program, access, web = context.programs.git, _access(context), context.web
    assert program is not None
    # A clone looks up names, for which there is only a proxy with --network hosts.
    is_open = context.facts.is_networked and context.facts.network != "hosts"
    guard = Guard(hosts=web.hosts, private=web.private) if is_open else None
    return Provider(
        provide=lambda request: GitCloner(
            broker=context.broker, program=program, access=access(request), guard=guard
        )
    )


def _pushes(context: ProviderContext) -> Provider:
    from mcp_toolserver.runtime.git.changing import ChangeAccess
    from mcp_toolserver.runtime.git.push import GitPusher

    program, access = context.programs.git, _access(context)
    assert program is not None
    return Provider(
        provide=lambda request: GitPusher(
            access=ChangeAccess(repositories=access(request), scope=request.scope, author=""),
            broker=context.broker,
            program=program,
            variables=context.ssh_agent,
            closed=(*context.roots, context.workspace.private),
        )
    )


def _worktrees(context: ProviderContext) -> Provider:
    from mcp_toolserver.runtime.worktrees.worktrees import CallWorktrees, WorktreeServices
    from mcp_toolserver.stores.worktrees import StoredWorktrees

    services = WorktreeServices(
        git=context.git(),
        workspace=context.workspace,
        may_hide=context.may_hide,
        author=context.git_author,
        stored=StoredWorktrees(context.database),
        entered=context.worktrees,
    )
    return Provider(
        provide=lambda request: CallWorktrees(
            services=services, workspace=request.workspace, scope=request.scope, decide=request.calls.decide
        )
    )


def _web(context: ProviderContext) -> Provider:
    from mcp_toolserver.runtime.web.calls import WebServices

    return Provider(provide=WebServices(context.web).provide)


def _languages(context: ProviderContext) -> Provider:
    """Answers queries about code by language servers; where no command may run, by a search."""
    from mcp_toolserver.runtime.lsp.code_queries import CodeQueries
    from mcp_toolserver.runtime.lsp.pool import Pool, search_folders, start_server

    search, pool = context.search(), None
    if Capability.PROCESS.unavailable(context.facts) is None:
        start = partial(start_server, context.broker, has_caches=context.facts.is_unconfined)
        pool = Pool(start, search_folders(context.programs.path), context.roots)

    def provide(request: ServiceRequest) -> CodeQueries:
        return CodeQueries(
            pool=pool,
            workspace=request.workspace,
            owner=request.scope.owner,
            search=None if search is None else search(request.workspace),
            may_hide=context.may_hide,
            refuses=request.scope.refuses,
        )

    return Provider(
        provide=provide,
        forget=pool and pool.forget,
        forgotten=pool and pool.forgotten,
        aclose=pool and pool.aclose,
    )


def _agents(context: ProviderContext) -> Provider:
    from mcp_toolserver.runtime.agents.agents import CallAgents, ServerAgents

    agents = ServerAgents(context)
    return Provider(provide=lambda request: CallAgents(agents, request), forget=agents.forget)


def _tasks(context: ProviderContext) -> Provider:
    from mcp_toolserver.runtime.tasks.service import OwnerTasks

    runner = context.runner
    return Provider(
        provide=lambda request: OwnerTasks(runner, request),
        forget=runner.forget,
        aclose=runner.aclose,
    )


def _cron(context: ProviderContext) -> Provider:
    from mcp_toolserver.runtime.cron.schedules import OwnerSchedules
    from mcp_toolserver.stores.cron import StoredSchedules

    runner = context.runner
    store = StoredSchedules(runner.board)
    return Provider(
        provide=lambda request: OwnerSchedules(runner=runner, store=store, calls=request.calls),
        aclose=runner.aclose,
    )


def _skills(context: ProviderContext) -> Provider:
    from mcp_toolserver.runtime.skills.discovery import Discovery
    from mcp_toolserver.runtime.skills.skills import CallSkills
    from mcp_toolserver.stores.skills import StoredSkills

    discovery, stored = Discovery(), StoredSkills(context.database)
    return Provider(
        provide=lambda request: CallSkills(
            discovery=discovery,
            stored=stored,
            view=request.workspace,
            whole=context.workspace,
            others=context.skill_folders,
            restricts=context.restricts_skills,
            scope=request.scope,
            user=request.calls.dispatcher.user,
            narrowings=request.calls.dispatcher.narrowings,
            rules=request.calls.dispatcher.rules,
        )
    )


def _todos(context: ProviderContext) -> Provider:
    from mcp_toolserver.stores.stored import OwnerTodos, StoredTodos

    todos = StoredTodos(context.database, changed=lambda handle: context.changes.changed("todos", handle))
    return Provider(provide=lambda request: OwnerTodos(todos, request.scope.owner), forget=todos.forget)


def _preferences(context: ProviderContext) -> Provider:
    from mcp_toolserver.stores.stored import StoredPreferences

    preferences = StoredPreferences(
        context.database,
        context.decided,
        user=context.user,
        changed=lambda: context.changes.changed("preferences"),
    )
    return Provider(provide=lambda _: preferences)


def _plan(context: ProviderContext) -> Provider:
    from mcp_toolserver.runtime.plan.plan_modes import OwnerPlans

    return Provider(provide=lambda request: OwnerPlans(context.plans, request.scope.owner))


def _desktop(context: ProviderContext) -> Provider:
    from mcp_toolserver.runtime.desktop.desktop import CallDesktop, DesktopHelpers

    helpers = DesktopHelpers(context.broker, context.programs.desktop)
    return Provider(
        provide=lambda request: CallDesktop(
            helpers=helpers, workspace=request.workspace, needs=request.needs
        ),
        aclose=helpers.aclose,
    )


_PROVIDERS: Mapping[Capability, Callable[[ProviderContext], Provider]] = {
    Capability.PROCESS: _process,
    Capability.POWERSHELL: _powershell,
    Capability.SESSIONS: _sessions,
    Capability.CONTAINERS: _containers,
    Capability.SEARCH: _search,
    Capability.GIT: _git,
    Capability.GIT_WRITE: _git_write,
    Capability.CLONES: _clones,
    Capability.PUSHES: _pushes,
    Capability.WORKTREES: _worktrees,
    Capability.FETCH: _web,
    Capability.SEND: _web,
    Capability.LANGUAGES: _languages,
    Capability.AGENTS: _agents,
    Capability.TEAMS: _agents,
    Capability.TASKS: _tasks,
    Capability.TASK_RUNS: _tasks,
    Capability.CRON: _cron,
    Capability.SCHEDULES: _cron,
    Capability.SKILLS: _skills,
    Capability.SKILLS_SAVE: _skills,
    Capability.TODOS: _todos,
    Capability.PREFERENCES: _preferences,
    Capability.PLAN: _plan,
    **dict.fromkeys(DESKTOP, _desktop),
}
"""What builds the provider of each capability; those that share one share its state. `host_services.BUILT_IN`
has those that need nothing beyond the call."""


_PROTOCOL_TASK = len("task_") + 32
"""Characters of the id of an MCP task; tasks of the board have shorter ones."""


@dataclass
class BackgroundJobs:
    """All background jobs of a server: commands, agents, tasks of the board and MCP tasks. They share one id
    space, and the prefix of a handle names the source of its job."""

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
        return await self._source(query.handle).output(query)

    async def stop(self, handle: str, why: str = "") -> JobState:
        """See `JobSource.stop`. A task of the board keeps `why`."""
        from mcp_toolserver.runtime.tasks.service import OwnerTasks

        source = self._source(handle)
        return await (source.stop(handle, why) if isinstance(source, OwnerTasks) else source.stop(handle))

    async def transcript(self, agent: str) -> str:
        """See `CallAgents.transcript`."""
        from mcp_toolserver.runtime.agents.agents import CallAgents

        agents = self.jobs.sources["agent_"](self.request)
        assert isinstance(agents, CallAgents)
        return await agents.transcript(agent)

    async def wait(self, queries: Sequence[JobQuery]) -> None:
        """Wait for what `queries` ask for: for the end of all jobs, or for the first other thing.

        Raises:
            NotFound: there is no such job.
        """
        for query in queries:
            await self.output(replace(query, wait=0.0))

        async def wait_for(query: JobQuery) -> None:
            # What has gone meanwhile is an error of the read that follows.
            with suppress(ToolError):
                await self.output(query)
            if query.until != "end":
                tasks.cancel_scope.cancel()

        async with create_task_group() as tasks:
            for query in queries:
                tasks.start_soon(wait_for, query)

    async def send(self, to: str, message: str) -> tuple[str, ...]:
        """See `MessageTarget.send`. Who writes to a command needs the right to run that."""
        is_command, process = to.startswith("bg_"), Capability.PROCESS
        if is_command:
            if process not in self.request.host.permissions:
                raise Unavailable("This call may run no command, so it may write to none.")
            needed = Request(
                tool="bash",
                level=self.request.host.permissions[process],
                subjects=tuple((part,) for part in simple_parts(message)),
                needs=frozenset({process}),
                script=message,
            )
            self.request.calls.require(needed, "Writing to a command counts as running one.")
        target = self._source(to if is_command else "agent_")
        assert isinstance(target, MessageTarget)
        return await target.send(to, message)

    def _source(self, handle: str) -> JobSource:
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


class Providers:
    """All providers of one server."""

    def __init__(self, context: ProviderContext) -> None:
        self._context = context
        self._built: dict[Callable[[ProviderContext], Provider], Provider] = {}
        sources = {"agent_": self._service(Capability.AGENTS), "task_": self._service(Capability.TASKS)}
        if (commands := context.commands_or_none) is not None:
            sources["bg_"] = lambda request: commands.for_call(request.workspace, request.scope)
        self.jobs = BackgroundJobs(sources)

    @property
    def services(self) -> Mapping[Capability, Provide]:
        """What returns the service of each capability for a call."""
        return {
            **{need: self._service(need) for need in _PROVIDERS},
            Capability.JOBS: partial(CallJobs, self.jobs),
        }

    def _service(self, need: Capability) -> Provide:
        return lambda request: self._provider(need).provide(request)

    def _provider(self, need: Capability) -> Provider:
        build = _PROVIDERS[need]
        if build not in self._built:
            self._built[build] = build(self._context)
        return self._built[build]

    def runner(self) -> TaskRunner:
        """What runs tasks and the runs of schedules; its provider exists from then on."""
        self._provider(Capability.TASKS)
        return self._context.runner

    @property
    def shutdown_timeout(self) -> float:
        """The longest that closing a provider may take; 0 where none is slow."""
        built = self._built.values()
        return max((one.shutdown_timeout() for one in built if one.shutdown_timeout), default=0.0)

    def forget(self, owner: str) -> None:
        for one in self._built.values():
            if one.forget is not None:
                one.forget(owner)

    async def forgotten(self) -> None:
        async with create_task_group() as tasks:
            for one in self._built.values():
                if one.forgotten is not None:
                    tasks.start_soon(one.forgotten)

    async def aclose(self, *, before_commands: bool) -> None:
        """Close the providers that were built, at the same time."""
        async with create_task_group() as tasks:
            for one in self._built.values():
                if one.aclose is not None and one.needs_commands_to_close == before_commands:
                    tasks.start_soon(one.aclose)
