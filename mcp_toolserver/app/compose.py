"""The composition root: builds the application from the settings.

It imports everything, so it must be imported after the broker has forked.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from anyio import create_task_group, to_thread

from mcp_toolserver.app.agent_model import model_options
from mcp_toolserver.app.agent_policy import with_agent_policy
from mcp_toolserver.app.confinement import back_up_histories, broker_policy, command_bounds, ssh_agent
from mcp_toolserver.app.policy import (
    approvals_of,
    build_hooks,
    build_policy,
    hide_from_commands,
    lenient_rules,
    project_rules,
)
from mcp_toolserver.capabilities.change_events import ChangeEvents
from mcp_toolserver.capabilities.permissions import Capability, HostFacts, Permission, ServerLock
from mcp_toolserver.errors import RegistrationError, SettingsError, Unavailable
from mcp_toolserver.pipeline.dispatcher import Choices, Dispatcher, Slots
from mcp_toolserver.pipeline.narrowings import PLAN_MODE, Narrowings
from mcp_toolserver.pipeline.nested_calls import NestedCalls, calls_without_client
from mcp_toolserver.pipeline.registry import Registry, discover
from mcp_toolserver.policy.requirements import narrowing
from mcp_toolserver.policy.rules import Narrowing, Policy
from mcp_toolserver.protocol.http.tokens import Grant
from mcp_toolserver.protocol.instructions import EnforcementStatus
from mcp_toolserver.runtime.agents.spending import AgentLimits
from mcp_toolserver.runtime.background import Background
from mcp_toolserver.runtime.executables import HostExecutables
from mcp_toolserver.runtime.files.path_resolver import Openat2, best_resolver, relative_to
from mcp_toolserver.runtime.files.protection import protection
from mcp_toolserver.runtime.files.workspace import Entered, Workspace
from mcp_toolserver.runtime.host_services import Available, HostServices
from mcp_toolserver.runtime.models.model import ProviderModel
from mcp_toolserver.runtime.plan.plan_modes import PlanModes
from mcp_toolserver.runtime.processes.broker_client import Broker, Proof, Writers, start_standalone_broker
from mcp_toolserver.runtime.processes.commands import CommandLimits, Commands
from mcp_toolserver.runtime.processes.connections import Connections
from mcp_toolserver.runtime.processes.sessions import Sessions
from mcp_toolserver.runtime.providers import ProviderContext, Providers
from mcp_toolserver.runtime.sandbox.layers.spec import TEMPORARY, may_share
from mcp_toolserver.runtime.web.options import (
    WebOptions,
    host_patterns,
    key_files,
    private_places,
    read_key,
)
from mcp_toolserver.runtime.web.options import providers as search_providers
from mcp_toolserver.runtime.windows_paths import WindowsPaths
from mcp_toolserver.settings import Settings
from mcp_toolserver.stores.approvals import APPROVALS
from mcp_toolserver.stores.audit_log import AuditContext, AuditLog
from mcp_toolserver.stores.database import Database
from mcp_toolserver.stores.disk import (
    CACHES_FOLDER,
    HISTORY_FOLDER,
    MIB,
    QUARANTINE_FOLDER,
    Removed,
    enforce_limits,
)
from mcp_toolserver.stores.file_history import FOLDER as UNDO_FOLDER
from mcp_toolserver.stores.file_history import FileHistories, HistoryLimits
from mcp_toolserver.stores.running_servers import RunningServer, oldest_start, sweep
from mcp_toolserver.stores.saved_outputs import OutputLimits, OutputStore
from mcp_toolserver.stores.state_dir import make_state_folder, state_folder
from mcp_toolserver.telemetry import observers
from mcp_toolserver.text.documents.file_type import PARSERS
from mcp_toolserver.text.enforcement_summary import is_weakened, summary
from mcp_toolserver.text.file_names import lies_in
from mcp_toolserver.text.shell.command_output import Confined, explain
from mcp_toolserver.tool_spec import Profile

if TYPE_CHECKING:
    from mcp_toolserver.app.upstreams import UpstreamHost
    from mcp_toolserver.protocol.upstreams.servers import UpstreamServers
    from mcp_toolserver.runtime.skills.discovery import Discovery
    from mcp_toolserver.stores.tasks import StoredTasks


log = logging.getLogger(__name__)


class Shared:
    """What a server has once, also where each name of a token has an application of its own.

    `held_by` confines this process; None if the server will run no call, so it opens no audit log.
    """

    def __init__(
        self,
        settings: Settings,
        broker: Broker | None,
        found: HostExecutables,
        *,
        held_by: ServerLock | None,
        upstreams: Sequence[UpstreamHost] = (),
    ) -> None:
        self.registry = registry(settings)
        self.settings = settings = with_agent_policy(settings, self.registry)
        self.broker, self.found, self.upstreams = broker, found, upstreams
        self.facts = host_facts(settings, found, broker.proof if broker else None, server_lock=held_by)
        if upstreams:
            reach = "networked" if any(one.upstream.is_networked for one in upstreams) else "local"
            self.facts = replace(self.facts, upstreams=reach)
        self.web = WebOptions() if settings.network == "none" else web_options(settings)
        own = build_policy(settings, self.registry)
        self.project = project_rules(settings, own, self.registry)
        self.policy = policy = self.project.applied(own)
        self.hooks = build_hooks(settings, self.registry, broker)
        self.state = state = state_folder(settings.state_dir)
        layers = {need: need.value.layers(self.facts) for need in Capability}
        context = AuditContext(mode=self.facts.mode.flag, layers=layers, values=settings.audit_values)
        self.audit = None if held_by is None else AuditLog(make_state_folder(state), context)
        if broker and self.audit and settings.network == "hosts":
            broker.connections = Connections(broker.report_connections(), self.audit.add)
        self.running = None if held_by is None else _running(state)
        """The record of this process in the state folder; None if the server will run no call."""
        self.workspace = Workspace(
            settings.root,
            private=state,
            hides=policy.hiding_rule,
            protects=_protection(settings),
            read_only_folders=settings.read_only_roots,
            recording=self.running,
        )
        self.lower_brokers: dict[Permission, Broker] = {}
        self.outputs = OutputStore(
            state,
            OutputLimits(
                total=settings.output_size * MIB,
                seconds=settings.output_hours * 3600.0,
                reserve=settings.disk_reserve * MIB,
            ),
        )
        self.histories = FileHistories(
            state, HistoryLimits(total=settings.undo_size * MIB, reserve=settings.disk_reserve * MIB)
        )
        shares = broker is not None and broker.proof.shares_session
        self.sessions = Sessions(broker, self.workspace.roots) if broker and shares else None
        """None if commands share nothing."""
        self.database = Database(state, self.workspace.roots)
        self.approvals = Database(state, (), name=APPROVALS)
        self.skill_folders = _skill_folders(settings, self.workspace)
        self.model = (options := model_options(settings)) and ProviderModel(options)
        self.model_names = options.names if options else ()
        self.observers = observers(settings.log_level)
        self.slots = Slots()
        self.narrowings = narrowings = Narrowings()
        """What takes rights from the calls of each owner."""
        self.hidden_git = hide_from_commands(settings, policy, broker, found.git)
        if broker and settings.permission_mode is not Permission.READ_ONLY:
            broker.writers.is_held = partial(narrowings.holds, key=PLAN_MODE)

    def lower_broker(self, mode: Permission) -> Broker:
        """The broker of a danger-full-access server for commands of a lower mode, started with the first. It
        confines commands as that of a server in this mode does.

        Raises:
            Unavailable: there is none.
        """
        if mode not in self.lower_brokers:
            lower = replace(self.settings, permission_mode=mode)
            broker = start_standalone_broker(broker_policy(lower, self.found))
            try:
                hide_from_commands(lower, self.policy, broker, self.found.git)
            except SettingsError as error:
                broker.close()
                raise Unavailable(f"No command runs in {mode.flag}: {error}") from None
            self.lower_brokers[mode] = broker
        return self.lower_brokers[mode]


@dataclass(kw_only=True)
class Application:
    """All parts of a server, ready to serve or to be called: its own ones, and what it shares with others."""

    shared: Shared
    settings: Settings
    policy: Policy
    workspace: Workspace
    windows: WindowsPaths | None = None
    """In WSL, what Windows calls the folders here."""
    users: dict[str, Application] = field(default_factory=dict[str, "Application"])
    """The applications of names that are in use."""

    def __post_init__(self) -> None:
        shared, settings = self.shared, self.settings
        self.facts = shared.facts.in_mode(settings.permission_mode)
        self.user = self.policy.token
        """The name whose token its clients have; empty if it is for all clients."""
        self.roots = self.workspace.roots
        self.changes, self.background, self.worktrees = ChangeEvents(), Background(), dict[str, Entered]()
        self.upstreams = _upstreams(self)
        self.registry = shared.registry.on(self.facts, self.upstreams)
        configured = {"agents": self.facts.agent_model, "gateway": self.facts.upstreams}
        self.listed = self.registry.select(
            settings.toolsets,
            settings.tools,
            settings.exclude_tools,
            with_default=[toolset for toolset, has in configured.items() if has],
        )
        self.plans = PlanModes(
            shared.state,
            shared.narrowings,
            shared.broker.writers if shared.broker else Writers(),
            self.policy.ceiling,
            self.user,
        )
        self.broker = self._broker()
        confined = self._confined()
        self.explained: Callable[[str, int | None, bool], tuple[str, ...]] = (
            lambda output, status, read_only: explain(output, status, confined, read_only=read_only)
        )
        self.commands = self._commands()
        self.providers = Providers(self._provider_context())
        self.tasks = cache(partial(_tasks, shared.database))
        self.dispatcher = self._dispatcher()
        self.status = EnforcementStatus(
            mode=settings.permission_mode,
            commands=Capability.PROCESS in self.dispatcher.host.permissions,
            commands_in=self.facts.commands_in if self.facts.may_leave_sandbox else None,
            network=self.facts.is_networked,
            summary=summary(self.facts) + (excepted := _excepted(settings)) + _DRY_RUN * settings.dry_run,
            is_weakened=is_weakened(self.facts) or bool(excepted),
            read_only=settings.read_only_roots,
        )
        started = [part for part in (self.commands, shared.sessions) if part is not None]
        own, stores = (self.plans, self.providers), (shared.outputs, shared.histories)
        for part in (*started, *own, shared.narrowings, *stores):
            self.changes.when_forgotten(part.forget)
        self.changes.when_forgotten(lambda owner: self.worktrees.pop(owner, None))
        self.changes.when_forgotten(lambda owner: self.dispatcher.states.pop(owner, None))

    @property
    def shutdown_timeout(self) -> float:
        """Seconds that shutdown may take. Removing a container takes longer than ending a process."""
        every = (self, *self.users.values())
        return max(0.4, *(one.providers.shutdown_timeout for one in every))

    async def aclose(self) -> None:
        """Kill every command, and remove the saved outputs."""
        try:
            await self.end()
            if self.shared.model is not None:
                await self.shared.model.aclose()
            of_upstreams = (one.broker for one in self.shared.upstreams)
            for broker in (self.shared.broker, *self.shared.lower_brokers.values(), *of_upstreams):
                if broker is not None:
                    # The broker waits for processes that do not die at once.
                    await to_thread.run_sync(broker.close, abandon_on_cancel=True)
        finally:
            self.shared.outputs.close()
            self.shared.database.close()
            self.shared.approvals.close()
            if self.shared.running is not None:
                self.shared.running.close()
            self.record()

    async def end(self) -> None:
        """Kill every command of this application; what it shares with others stays."""
        # It starts calls, so it ends first.
        await self.background.aclose()
        self.plans.close()
        # Killing commands would make their tasks look failed, so these are stored as cancelled before.
        if self.tasks.cache_info().currsize:
            await self.tasks().aclose()
        await self.providers.aclose(before_commands=True)
        async with create_task_group() as tasks:
            tasks.start_soon(partial(self.providers.aclose, before_commands=False))
            if self.commands is not None:
                tasks.start_soon(self.commands.aclose)

    def record(self) -> None:
        """Record the running calls as cancelled. May be called twice."""
        for broker in (self.shared.broker, *(one.broker for one in self.shared.upstreams)):
            if broker is not None and broker.connections is not None:
                broker.connections.take(at_end=True)
        if self.shared.audit is not None:
            self.shared.audit.close()

    def upkeep(self) -> None:
        """Remove the files of killed servers and supervisors, and what is over the limits of quarantine and
        undo. A failure is only logged, because serving needs none of this."""
        if (running := self.shared.running) is None:
            return
        try:
            removed = _clean_up(self.settings, self.shared.state, running.folder, self.workspace)
        except OSError as error:
            log.warning("the state folder could not be cleaned up: %s", error.strerror or error)
            return
        for name in removed.names:
            log.warning("removed from quarantine, which is over its bounds: %s", name)
        for name in removed.stuck:
            log.warning("over the bounds of the quarantine, and could not be removed: %s", name)

    def _broker(self) -> Broker | None:
        """The broker of the server, with the name and the backups of this application."""
        shared = self.shared
        broker = shared.broker and copy(shared.broker)
        if broker:
            broker.user = self.user
            back_up_histories(broker, self.settings, shared.found.git, self.roots)
        return broker

    def _commands(self) -> Commands | None:
        shared = self.shared
        if self.broker is None:
            return None
        limits = CommandLimits(foreground_seconds=self.settings.foreground_seconds)
        commands = Commands(self.broker, self.workspace, shared.outputs, limits, explain=self.explained)
        commands.on_change(partial(self.changes.changed, "job"), partial(self.changes.removed, "job"))
        if shared.sessions is not None:
            commands.session_of = shared.sessions.of
        return commands

    def _provider_context(self) -> ProviderContext:
        shared, settings, facts = self.shared, self.settings, self.facts
        return ProviderContext(
            facts=facts,
            programs=shared.found,
            broker_or_none=self.broker,
            lower_broker=shared.lower_broker if facts.is_unconfined else None,
            commands_or_none=self.commands,
            outputs=shared.outputs,
            roots=shared.workspace.roots,
            may_hide=_may_hide(self.policy, shared.state, shared.workspace.roots),
            explain=self.explained,
            bounds=command_bounds(settings),
            container_image=settings.container_image,
            git_author=settings.git_author,
            ssh_agent=ssh_agent(),
            web=shared.web,
            skill_folders=shared.skill_folders,
            restricts_skills=settings.restrict_skills,
            database=shared.database,
            decided={
                "permissions.defaultMode": settings.permission_mode.flag,
                "permissions.granted": self.policy.granted.flag,
                "permissions.network": settings.network,
                "permissions.git": settings.git,
            },
            user=self.user,
            workspace=self.workspace,
            worktrees=self.worktrees,
            plans=self.plans,
            changes=self.changes,
            narrowings=shared.narrowings,
            background=self.background,
            calls_of=self._calls_of,
            join_session=shared.sessions.join if shared.sessions else lambda owner, other: None,
            end_owner=self._end_owner,
            agent_limits=AgentLimits(
                turns=settings.agent_turns,
                tokens=settings.agent_tokens,
                seconds=settings.agent_seconds,
                cost=settings.agent_cost,
                running=settings.agent_running,
                foreground_seconds=settings.foreground_seconds,
            ),
            model=lambda: shared.model,
            model_names=shared.model_names,
        )

    def _dispatcher(self) -> Dispatcher:
        shared, settings, facts, registry = self.shared, self.settings, self.facts, self.registry
        unlisted = registry.unlisted(
            settings.toolsets, settings.tools, settings.exclude_tools, listed=self.listed
        )
        return Dispatcher(
            registry=registry,
            offered=self.listed | unlisted,
            unlisted=unlisted,
            without_model=frozenset() if facts.agent_model else registry.needing_a_model(),
            without_own_model=frozenset()
            if facts.agent_model
            else registry.needing_a_model(after_the_call=True),
            for_resources=registry.select((Profile.ALL.name.lower(),), (), settings.exclude_tools),
            policy=self.policy,
            host=self._host(),
            recorder=shared.audit,
            observers=shared.observers,
            raw=settings.raw_output,
            user=self.user,
            project=shared.project.applied,
            read_project=shared.project.refresh,
            narrowings=shared.narrowings,
            approve=approvals_of(settings, shared.approvals, self.roots, self.user).approve,
            hooks=shared.hooks,
            is_dry_run=settings.dry_run,
            requirements=_requirements(registry, self.roots, facts),
            rules=lenient_rules(registry),
            on_behalf_of=self.changes.on_behalf_of,
            slots=shared.slots,
            choices=_choices(shared.skill_folders),
        )

    def _host(self) -> HostServices:
        shared = self.shared
        available = _available(self.facts, self.settings)
        return HostServices(
            permissions=available.permissions,
            unavailable=available.unavailable,
            in_mode=cache(partial(_available_in, self.facts, self.settings)),
            open_world=frozenset(need for need in Capability if need.value.open_world(self.facts)),
            view=lambda: self.workspace,
            worktrees=self.worktrees,
            outputs=shared.outputs,
            histories=shared.histories,
            plan_folders=self.plans.folders,
            temporary=(lambda _: None) if shared.sessions is None else shared.sessions.temporary,
            providers={
                **self.providers.services,
                **({Capability.UPSTREAMS: self.upstreams.provide} if self.upstreams else {}),
            },
        )

    def _confined(self) -> Confined | None:
        settings = self.settings
        if settings.permission_mode is Permission.DANGER_FULL_ACCESS:
            return None
        return Confined(
            writes=settings.permission_mode is not Permission.READ_ONLY,
            git=settings.git == "writable",
            network=settings.network,
            git_tools=_git_tools(self.registry, self.listed, self.facts),
            token=self.user,
            hidden_git=partial(_hidden_git, self.shared.hidden_git, self.roots),
        )

    def _calls_of(self, rights: str, owner: str, name: str) -> NestedCalls:
        # Few servers run stored work.
        from mcp_toolserver.pipeline import stored_rights

        found = stored_rights.from_json(rights, self.dispatcher.rules)
        return calls_without_client(self.dispatcher, found, owner=owner, name=name)

    async def _end_owner(self, owner: str) -> None:
        self.changes.forget(owner)
        if self.commands is not None:
            await self.commands.forgotten(owner)
        await self.providers.forgotten()


def build_application(  # noqa: PLR0913  what the process has at its start
    settings: Settings,
    broker: Broker | None,
    found: HostExecutables,
    *,
    held_by: ServerLock | None,
    windows: WindowsPaths | None = None,
    upstreams: Sequence[UpstreamHost] = (),
) -> Application:
    """Build the application, without an audit log if `held_by` is None, as it will run no call then.

    Raises:
        SettingsError: a tool, toolset, rule or root is unknown or invalid.
    """
    shared = Shared(settings, broker, found, held_by=held_by, upstreams=upstreams)
    hidden = shared.project.hidden_tools
    settings = replace(shared.settings, exclude_tools=(*shared.settings.exclude_tools, *hidden))
    return Application(
        shared=shared,
        settings=settings,
        policy=shared.policy,
        workspace=shared.workspace,
        windows=windows,
    )


def application_of(app: Application, grant: Grant) -> Application:
    """The application for the clients that have the token of `grant`: with its mode and roots, and with
    commands, sessions and other processes of its own, which its `end` ends."""
    shared, ceiling = app.shared, min(grant.ceiling, app.settings.permission_mode)
    settings = replace(app.settings, permission_mode=ceiling, root=grant.roots or app.roots)
    workspace = shared.workspace.guarded(_protection(settings))
    if grant.roots:
        workspace = workspace.restricted_to(grant.roots)
        # Without a root it says why.
        workspace = workspace if workspace.roots else workspace.restricted_to((), _NO_ROOT)
    if ceiling is Permission.READ_ONLY:
        workspace = workspace.read_only(
            f"cannot be written: the token {grant.name!r} is read-only. "
            "The operator of the server can change the token."
        )
    policy = app.dispatcher.policy.for_token(grant.name, ceiling)
    return Application(
        shared=shared, settings=settings, policy=policy, workspace=workspace, windows=app.windows
    )


_DRY_RUN = "; dry run: calls are decided and recorded, and none runs"

_NO_ROOT = "none of the roots of its token is a folder now. Tell the user to ask the operator of the server."


def _choices(skill_folders: Sequence[Workspace]) -> Mapping[str, Choices]:
    """The agent types and skills of a workspace. Few servers list the tools that need the imports."""

    @cache
    def discovery() -> Discovery:
        from mcp_toolserver.runtime.skills.discovery import Discovery

        return Discovery()

    def skills(host: HostServices) -> Sequence[tuple[str, str]]:
        from mcp_toolserver.runtime.skills.discovery import places_of

        places = places_of(host.workspace, host.workspace, skill_folders)
        index = discovery().run(places).index()
        return [(card.name, card.description) for card in index.cards if card.model_invocable]

    def types(host: HostServices) -> Sequence[tuple[str, str]]:
        from mcp_toolserver.runtime.agents.agent_files import custom_types

        return [(kind.name, kind.description) for kind in custom_types(host.workspace).types]

    return {"Agent": types, "Skill": skills}


def _upstreams(app: Application) -> UpstreamServers | None:
    if not app.shared.upstreams:
        return None
    # Few servers have any.
    from mcp_toolserver.app.upstreams import upstream_servers

    servers = upstream_servers(app, app.shared.upstreams)
    servers.changed = partial(app.changes.changed, "tools")
    return servers


def _skill_folders(settings: Settings, workspace: Workspace) -> tuple[Workspace, ...]:
    """Raises: SettingsError: one of them is not a folder."""
    found: list[Workspace] = []
    for folder in settings.skills:
        try:
            found.append(workspace.elsewhere(folder))
        except OSError:
            raise SettingsError(f"--skills {folder}: not a folder that can be opened.") from None
    return tuple(found)


def _available(facts: HostFacts, settings: Settings) -> Available:
    reasons = {need: need.unavailable(facts) for need in Capability}
    return Available(
        permissions={need: need.required(facts) for need, why in reasons.items() if why is None},
        unavailable={need: why for need, why in reasons.items() if why is not None},
        protects=_protection(replace(settings, permission_mode=facts.mode)),
    )


def _available_in(facts: HostFacts, settings: Settings, mode: Permission) -> Available:
    """What is available in a permission mode below that of the server."""
    lower = _available(facts.in_mode(mode), settings)
    if not facts.is_unconfined or Capability.PROCESS.unavailable(facts) is not None:
        return lower
    # A broker for this mode confines commands, and refuses them where it cannot.
    others = {need: why for need, why in lower.unavailable.items() if need is not Capability.PROCESS}
    level = Capability.PROCESS.required(facts.in_mode(mode))
    return replace(lower, permissions={**lower.permissions, Capability.PROCESS: level}, unavailable=others)


def _protection(settings: Settings) -> Callable[[str], str | None]:
    return protection(
        settings.root,
        mode=settings.permission_mode,
        writable_names=settings.writable_name,
    )


def _tasks(database: Database) -> StoredTasks:
    # Few clients use tasks.
    from mcp_toolserver.stores.tasks import StoredTasks

    return StoredTasks(database)


def _running(state: str) -> RunningServer | None:
    try:
        return RunningServer(state)
    except OSError as error:
        log.warning("this server leaves no record in the state folder: %s", error.strerror or error)
        return None


def _clean_up(settings: Settings, state: str, records: str, workspace: Workspace) -> Removed:
    """Remove what is not used any more; returns what became of the quarantine. Raises: OSError."""
    if settings.permission_mode is not Permission.READ_ONLY:
        sweep(records, workspace.open_inside)
    if find_spec("fcntl") is not None:
        # Without such locks no command has run.
        from mcp_toolserver.runtime.sandbox.broker.temp_folder import sweep as sweep_scratch

        sweep_scratch(state)
    since = oldest_start(records)
    total, seconds = settings.undo_size * MIB, settings.undo_days * 86400.0
    enforce_limits(f"{state}/{UNDO_FOLDER}", total=total, seconds=seconds, since=since)
    if os.path.isdir(f"{state}/{HISTORY_FOLDER}"):
        from mcp_toolserver.stores.git_backups import users

        for folder in users(state):
            # A user who filled the room keeps what is there.
            enforce_limits(folder, total=sys.maxsize, seconds=seconds, since=since)
    # A cache is made anew by what needs it, so it stays no longer than what can be undone.
    total = settings.cache_size * MIB
    enforce_limits(f"{state}/{CACHES_FOLDER}", total=total, seconds=seconds, since=since)
    total, seconds = settings.quarantine_size * MIB, settings.quarantine_days * 86400.0
    return enforce_limits(f"{state}/{QUARANTINE_FOLDER}", total=total, seconds=seconds, since=since)


def registry(settings: Settings) -> Registry:
    """All tools: the server's, and the operator's own.

    Raises:
        SettingsError: one of the operator's cannot be loaded, or its name is taken.
    """
    if not settings.tool_files and not settings.tool_packages:
        return Registry(discover())
    # Servers without own tools skip this import.
    from mcp_toolserver.custom_tools.load import load_custom_tools

    own = load_custom_tools(settings.tool_files, settings.tool_packages, settings.root)
    try:
        return Registry((*discover(), *own))
    except RegistrationError as error:
        raise SettingsError(f"tools of your own: {error}; give yours another name") from None


def _requirements(registry: Registry, roots: Sequence[str], facts: HostFacts) -> Mapping[str, Narrowing]:
    """Raises: SettingsError: the requirement set of a tool cannot be kept."""
    specs = [entry.spec for entry in registry.entries.values()]
    variables = {"workspace": roots, "ad-hoc": (TEMPORARY,) if facts.shares_tmp else (), "user-data": ()}
    try:
        return {spec.name: narrowing(spec, spec.requires, variables) for spec in specs if spec.requires}
    except (RegistrationError, ValueError) as error:
        raise SettingsError(f"tools of your own: {error}") from None


def _excepted(settings: Settings) -> str:
    """What the operator took out of the protection, which is said to clients and at the start."""
    if settings.permission_mode is not Permission.WORKSPACE_WRITE or not settings.writable_name:
        return ""
    names = ", ".join(settings.writable_name)
    log.warning("not protected, because of --writable-name: %s", names)
    return f"; not protected (--writable-name): {names}"


def host_facts(
    settings: Settings, found: HostExecutables, proof: Proof | None, *, server_lock: ServerLock | None
) -> HostFacts:
    """The facts that decide which capabilities a server with these settings has. `proof` is the result of the
    broker's self-test; None without a broker.
    """
    full, granted = settings.permission_mode is Permission.DANGER_FULL_ACCESS, settings.granted
    is_confined = full and settings.sandbox != "off" and granted is not Permission.DANGER_FULL_ACCESS
    facts = HostFacts(
        mode=settings.permission_mode,
        commands_in=granted if is_confined else None,
        network=settings.network,
        git_writable=settings.git == "writable",
        containers=settings.containers,
        desktop_private=settings.desktop_private,
        server_lock=server_lock,
        openat2=isinstance(best_resolver(), Openat2),
        agent_model=settings.agent_provider is not None,
        documents=tuple(kind for kind, parser in PARSERS.items() if find_spec(parser) is not None),
        missing_programs=found.missing,
    )
    if proof is None:
        return facts
    return replace(
        facts,
        starts_programs=True,
        command_sandbox=proof.commands,
        helper_sandbox=proof.helpers,
        filters_syscalls=proof.filtered,
        shares_loopback=proof.shares_session,
        shares_tmp=proof.shares_session and may_share([os.path.realpath(root) for root in settings.root]),
        sandbox_problem="; ".join(proof.reasons) or "this machine has no sandbox for commands",
    )


def web_options(settings: Settings) -> WebOptions:
    """Raises: SettingsError: a host, a network, a search engine or a key is invalid."""
    keys = {name: read_key(path) for name, path in key_files(settings.web_search_keys).items()}
    return WebOptions(
        hosts=host_patterns(settings.web_hosts),
        private=private_places(settings.web_private),
        robots=settings.web_robots,
        providers=tuple(
            replace(one, seconds=settings.web_search_seconds)
            for one in search_providers(settings.web_search, keys)
        ),
        searches=settings.web_searches,
    )


def _git_tools(registry: Registry, listed: frozenset[str], facts: HostFacts) -> tuple[str, ...]:
    """The tools that are offered for what commands cannot do in a protected `.git` folder."""
    if Capability.GIT_WRITE.unavailable(facts) is not None:
        return ()
    changing = (frozenset({Capability.GIT_WRITE}), frozenset({Capability.GIT, Capability.FS_WRITE}))
    needs = {name: registry.entries[name].spec.needs for name in listed}
    return tuple(sorted(name for name in listed if any(one <= needs[name] for one in changing)))


def _hidden_git(hidden: Mapping[str, str], roots: Sequence[str]) -> Sequence[tuple[str, str]]:
    """Those of the `hidden` repositories that lie in or above `roots`, not in the roots of others."""
    return [
        (path, why)
        for path, why in hidden.items()
        if any(lies_in(root, path) or lies_in(os.path.dirname(path), root) for root in roots)
    ]


def _may_hide(policy: Policy, state: str, roots: tuple[str, ...]) -> bool:
    """Whether any file can be hidden; if not, a search need not check each file."""
    return policy.hides_anything or any(relative_to(root, state) is not None for root in roots)
