"""The parts put together. It imports everything, so it is imported after the broker is forked."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from anyio import create_task_group, to_thread

from mcp_toolserver import parts
from mcp_toolserver.capabilities.prices import PRICES, Capability, Permission
from mcp_toolserver.changes import Changes
from mcp_toolserver.dispatch import Dispatcher
from mcp_toolserver.errors import RegistrationError, SettingsError
from mcp_toolserver.later import LaterPart
from mcp_toolserver.observe import witnesses
from mcp_toolserver.policy.rules import Policy, Vocabulary, parse
from mcp_toolserver.policy.watchdog import commands
from mcp_toolserver.protocol.guidance import Standing
from mcp_toolserver.record import Recorder, Witnessed
from mcp_toolserver.registry import Registry, on_shelf
from mcp_toolserver.runtime.beneath import Openat2, below, best_engine
from mcp_toolserver.runtime.broker import Broker
from mcp_toolserver.runtime.desktop_programs import DESKTOP, lacking_desktop
from mcp_toolserver.runtime.found_programs import Found
from mcp_toolserver.runtime.fs import Workspace
from mcp_toolserver.runtime.grant import Machine
from mcp_toolserver.runtime.helper_programs import HelperPrograms
from mcp_toolserver.runtime.host_programs import ENGINES, POWERSHELLS, powershell_start
from mcp_toolserver.runtime.processes import CommandLimits, Commands
from mcp_toolserver.runtime.sandbox.protected import is_protected
from mcp_toolserver.runtime.sandbox.walls import Layer
from mcp_toolserver.runtime.web.keys import key_files, read_key
from mcp_toolserver.runtime.web.options import WebOptions, host_patterns, private_places, providers
from mcp_toolserver.settings import Settings
from mcp_toolserver.stores.audit import Audit
from mcp_toolserver.stores.database import Database
from mcp_toolserver.stores.folder import make_state_folder, state_folder
from mcp_toolserver.stores.line import Facts
from mcp_toolserver.stores.outputs import Outputs
from mcp_toolserver.stores.preferences import StoredPreferences
from mcp_toolserver.stores.todos import StoredTodos
from mcp_toolserver.text.denials import Confined, explain
from mcp_toolserver.text.enforcement import Enforcement, summary

if TYPE_CHECKING:
    from mcp_toolserver.capabilities.kept import Preference
    from mcp_toolserver.capabilities.prices import Prices

    # Imported when they are first used.
    from mcp_toolserver.runtime.containers import Containers
    from mcp_toolserver.runtime.interpreters import Interpreters
    from mcp_toolserver.runtime.language_servers import LanguageServers
    from mcp_toolserver.stores.tasks import StoredTasks


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """A server, ready to serve or to be called."""

    settings: Settings
    dispatcher: Dispatcher
    standing: Standing
    roots: tuple[str, ...]
    outputs: Outputs
    changes: Changes
    database: Database
    tasks: LaterPart[StoredTasks]
    audit: Audit | None
    commands: Commands | None
    languages: LaterPart[LanguageServers]
    sessions: LaterPart[Interpreters] | None
    containers: LaterPart[Containers] | None
    desktop: HelperPrograms | None
    broker: Broker | None

    @property
    def patience(self) -> float:
        """See `ending.Closing`. A container engine takes its time, and a container outlives its client."""
        made = self.containers and self.containers.made
        return 10.0 if made is not None and made.has_any else 0.4

    async def aclose(self) -> None:
        """Kill every command and remove what was kept for callers."""
        try:
            # Before what they run is killed, which is not how they would have ended.
            await self.tasks.aclose()
            if self.containers is not None:
                await self.containers.aclose()
            async with create_task_group() as tasks:
                for part in (self.sessions, self.commands, self.languages, self.desktop):
                    if part is not None:
                        tasks.start_soon(part.aclose)
            if self.broker is not None:
                # It may have to wait for what does not die.
                await to_thread.run_sync(self.broker.close, abandon_on_cancel=True)
        finally:
            self.outputs.close()
            self.database.close()
            self.record()

    def record(self) -> None:
        """Write down the calls that still run, as cancelled."""
        if self.audit is not None:
            self.audit.close()


def assemble(settings: Settings, broker: Broker | None, found: Found, *, held_by: int | None) -> Assembly:
    """Put a server together. `held_by` is the version of Landlock that confines this process, 0 for none; or
    None where nothing will be called, and so nothing recorded.

    Raises:
        SettingsError: a tool, toolset, rule or root is unknown or wrong.
    """
    registry = _registry(settings)
    offer = offered_here(broker, settings, git=found.git is not None, lacking=_lacking(found, settings))
    web = None if Capability.FETCH in offer.withheld else parts.web(web_options(settings))
    listed = registry.select(settings.toolsets, settings.tools, settings.exclude_tools)
    unlisted = registry.unlisted(settings.toolsets, listed, settings.exclude_tools)
    policy = _policy(settings, registry)
    state = state_folder(settings.state_dir)
    outputs = Outputs(state)
    held = _enforcement(settings, broker, held_by or 0)
    audit = None if held_by is None else _audit(held, broker, state, values=settings.audit_values)
    workspace = Workspace(
        settings.root,
        readable=outputs.folder,
        hides=_hides(policy, state, outputs),
        protects=_protects(settings),
    )
    hiding = _may_hide(policy, state, workspace.roots)
    database = Database(state, workspace.roots)
    limits = CommandLimits(foreground_seconds=settings.foreground_seconds)
    confined = _confined(settings)
    running = broker and Commands(
        broker, workspace, outputs, limits, explain=lambda output: explain(output, confined)
    )
    search = parts.search(broker, found.ripgrep, hiding=hiding)
    changes = Changes()
    if running is not None:
        running.tell(partial(changes.changed, "job"), partial(changes.gone, "job"))
    starting = broker if Capability.PROCESS in offer.prices else None
    desktop = broker and HelperPrograms(broker, found.desktop)
    languages = parts.languages(starting, found.path, workspace.roots, search, hiding=hiding)
    sessions = broker and parts.sessions(broker, outputs, confined)
    containers = parts.containers(broker, running, found.engine, settings)
    machine = Machine(
        prices=offer.prices,
        absent=offer.absent,
        withheld=offer.withheld,
        open_world=_reaching(settings, offer, held_by),
        workspace=workspace,
        outputs=outputs,
        search=search,
        git=parts.git(broker, found.git, hiding=hiding),
        clones=parts.clones(broker, found.git, web if offer.networked else None, hiding=hiding),
        languages=lambda view: languages().within(view),
        desktop=desktop and parts.desktop(desktop),
        processes=running and running.within,
        jobs=running,
        sessions=sessions and (lambda view: sessions().within(view)),
        containers=containers and (lambda view, scope: containers().within(view, view.roots, scope)),
        powershell=found.powershell and powershell_start(found.powershell),
        todos=StoredTodos(database, changed=partial(changes.changed, "todos")),
        preferences=StoredPreferences(
            database, _decided(settings), changed=partial(changes.changed, "preferences")
        ),
        web=web,
    )
    dispatcher = Dispatcher(
        registry=registry,
        offered=listed | unlisted,
        unlisted=unlisted,
        policy=policy,
        host=machine,
        objections=(commands(_commands(registry)),),
        recorder=_recorder(audit, settings),
        raw=settings.raw_output,
    )
    return Assembly(
        settings=settings,
        dispatcher=dispatcher,
        standing=Standing(
            mode=settings.permission_mode,
            commands=Capability.PROCESS in offer.prices,
            network=offer.networked,
            summary=summary(held),
        ),
        audit=audit,
        roots=workspace.roots,
        outputs=outputs,
        changes=changes,
        database=database,
        tasks=parts.tasks(database),
        commands=running,
        languages=languages,
        sessions=sessions,
        containers=containers,
        desktop=desktop,
        broker=broker,
    )


def _registry(settings: Settings) -> Registry:
    """Every tool: the server's, and the operator's own.

    Raises:
        SettingsError: one of the operator's cannot be loaded, or has a name that is taken.
    """
    if not settings.tool_files and not settings.tool_packages:
        return Registry(on_shelf())
    # A server without them is spared this import.
    from mcp_toolserver.library.loading import own_tools

    own = own_tools(settings.tool_files, settings.tool_packages, settings.root)
    try:
        return Registry((*on_shelf(), *own))
    except RegistrationError as error:
        raise SettingsError(f"tools of your own: {error}; give yours another name") from None


def _enforcement(settings: Settings, broker: Broker | None, held_by: int) -> Enforcement:
    proof = broker.proof if broker else None
    return Enforcement(
        mode=settings.permission_mode.flag,
        openat2=isinstance(best_engine(), Openat2),
        landlock=held_by,
        commands=proof.commands if proof else "none",
        filtered=proof.filtered if proof else False,
    )


def _audit(held: Enforcement, broker: Broker | None, state: str, *, values: bool) -> Audit:
    """The record of all calls, which says of each what enforced the mode."""
    facts = Facts(mode=held.mode, layers=audit_layers(held, broker), values=values)
    return Audit.open(make_state_folder(state), facts)


def _recorder(audit: Audit | None, settings: Settings) -> Recorder | None:
    found = witnesses(settings.log_level)
    return Witnessed(recorder=audit, witnesses=found) if found else audit


def audit_layers(held: Enforcement, broker: Broker | None) -> Mapping[Capability, tuple[str, ...]]:
    """What enforces the mode for each capability."""
    locked = ("landlock", "seccomp") if held.landlock else ()
    files = ("openat2" if held.openat2 else "walk", *locked)
    walls = () if held.commands == "none" else (held.commands, *(("seccomp",) if held.filtered else ()))
    helpers = broker.proof.helpers if broker else "none"
    around_git = _around_git(broker) if broker else "none"
    return {
        # They have nothing to do with files or commands: what they change is the server's own.
        **dict.fromkeys(_OWN, ("own state", *locked)),
        # Nothing but the lock stands around it.
        Capability.OWN_CODE: locked,
        Capability.FS_READ: files,
        Capability.FS_WRITE: files,
        Capability.SEARCH: (*files, *(() if helpers == "none" else (f"{helpers} (rg)",))),
        Capability.GIT: (*files, *(() if around_git == "none" else (f"{around_git} (git)",))),
        **dict.fromkeys((*_COMMANDS, Capability.LANGUAGES, Capability.CLONES), walls),
        Capability.CONTAINERS: ("container",),
        # Only the ceiling: what is on a desktop is beyond every wall.
        **dict.fromkeys(DESKTOP, ()),
        **dict.fromkeys(_WEB, ("guard",)),
    }


_FILES = (Capability.FS_READ, Capability.FS_WRITE)
_COMMANDS = (Capability.PROCESS, Capability.JOBS, Capability.SESSIONS, Capability.POWERSHELL)
_OWN = (
    Capability.CLOCK,
    Capability.ASK,
    Capability.TELL,
    Capability.TODOS,
    Capability.PREFERENCES,
    Capability.CATALOGUE,
    Capability.OWN_CODE,
)
"""What every host has: it changes nothing but the server's own state."""
_WEB: tuple[Capability, ...] = (Capability.FETCH, Capability.SEND)

_SHOWING = (Capability.DESKTOP_OPEN, Capability.DESKTOP_APP)
"""What shows a user something, which may be anywhere."""

_ON_HOST = (Capability.PROCESS, Capability.SESSIONS, Capability.POWERSHELL)
"""What runs commands on this machine itself."""

NOTHING_LACKS: Mapping[Capability, str] = {}


def _reaching(settings: Settings, offer: Offer, held_by: int | None) -> frozenset[Capability]:
    """What reaches beyond this machine's files. A user's own code can what the server's process can."""
    connects = settings.network != "none" or held_by == 0
    own = (Capability.OWN_CODE,) if connects else ()
    started = (Capability.PROCESS, Capability.LANGUAGES, Capability.CLONES)
    commands = started if offer.networked and Capability.PROCESS in offer.prices else ()
    contained = settings.network != "commands" and settings.containers != "failover"
    containers = () if contained else (Capability.CONTAINERS,)
    return frozenset({*_WEB, *own, *commands, *containers, *_SHOWING})


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What this host has."""

    prices: Prices
    absent: Mapping[Capability, str]
    """Why it has not, where a missing wall is the reason."""
    withheld: Mapping[Capability, str]
    """Why it has not, where a setting or a program that is not installed is the reason."""
    networked: bool
    """Whether commands reach further than this machine's files."""


def _lacking(found: Found, settings: Settings) -> Mapping[Capability, str]:
    """What this host has not, because a program is not installed or the operator does not allow it."""
    programs = (
        (Capability.POWERSHELL, found.powershell, POWERSHELLS),
        (Capability.CONTAINERS, found.engine, ENGINES),
    )
    lacking = {
        need: f"no {' or '.join(names)} was found on the PATH of this server"
        for need, program, names in programs
        if program is None
    }
    lacking |= lacking_desktop(found.desktop, private=settings.desktop_private)
    if settings.containers == "containerOnly":
        contained = 'the operator lets commands run in containers only (containers = "containerOnly")'
        lacking |= dict.fromkeys(_ON_HOST, f"{contained}; use container_shell")
    return lacking


def offered_here(
    broker: Broker | None,
    settings: Settings,
    *,
    git: bool = True,
    lacking: Mapping[Capability, str] = NOTHING_LACKS,
) -> Offer:
    """What this host has, and what it costs; it never has what is `lacking`, for the reason named there.

    Behind walls a command can do no more than the mode allows, so it costs no more than that. A background
    command can exist only where commands can, so following one costs the same. A language server is a command
    too; where none can run, questions about code are answered by a search, which costs nothing.
    """
    mode = settings.permission_mode
    unwalled = mode is Permission.DANGER_FULL_ACCESS
    offline = "this server was started with --network none"
    withheld = {
        **lacking,
        **_unclonable(settings, git=git),
        **(dict.fromkeys(_WEB, offline) if settings.network == "none" else {}),
    }
    prices = {need: PRICES[need] for need in (*_FILES, *_OWN, *_WEB) if need not in withheld}
    absent: dict[Capability, str] = {}
    if broker is None:
        return Offer(prices=prices, absent=absent, withheld=withheld, networked=False)
    prices |= {need: PRICES[need] for need in DESKTOP if need not in withheld}
    why = "; ".join(broker.proof.reasons) or "this machine has none of the walls that commands need"
    for needs, held in (
        ((Capability.SEARCH,), broker.proof.helpers),
        ((Capability.GIT,) if git else (), _around_git(broker)),
        ([need for need in (Capability.CLONES,) if need not in withheld], broker.proof.commands),
        ([need for need in _COMMANDS if need not in withheld], broker.proof.commands),
    ):
        if unwalled or held != "none":
            prices |= {need: mode if need in _COMMANDS else PRICES[need] for need in needs}
        else:
            absent |= dict.fromkeys(needs, why)
    if Capability.PROCESS in prices or Capability.SEARCH in prices:
        prices[Capability.LANGUAGES] = prices.get(Capability.PROCESS, PRICES[Capability.SEARCH])
    else:
        absent[Capability.LANGUAGES] = why
    if Capability.CONTAINERS not in withheld:
        prices[Capability.CONTAINERS] = PRICES[Capability.CONTAINERS]
    networked = unwalled or settings.network == "commands"
    return Offer(prices=prices, absent=absent, withheld=withheld, networked=networked)


def _unclonable(settings: Settings, *, git: bool) -> Mapping[Capability, str]:
    """Why nothing can be cloned here, if so."""
    if not git:
        return {Capability.CLONES: "no git was found on the PATH of this server"}
    if settings.permission_mode is Permission.WORKSPACE_WRITE and settings.git != "writable":
        why = "a clone has a .git folder, and no command may make one unless the server is started with "
        return {Capability.CLONES: f"{why}--git writable"}
    return {}


def web_options(settings: Settings) -> WebOptions:
    """What the operator decided about the web.

    Raises:
        SettingsError: a host, a network, a search engine or a key is wrong.
    """
    keys = {name: read_key(path) for name, path in key_files(settings.web_search_keys).items()}
    return WebOptions(
        hosts=host_patterns(settings.web_hosts),
        private=private_places(settings.web_private),
        robots=settings.web_robots,
        providers=providers(settings.web_search, keys),
    )


def _around_git(broker: Broker) -> Layer:
    """What git runs behind: it reads more than one folder, as commands do."""
    proof = broker.proof
    return proof.helpers if proof.commands == "none" else proof.commands


def _decided(settings: Settings) -> Mapping[str, Preference]:
    """What a caller may know of the operator's decisions, under the names of its own settings."""
    granted = settings.permission_mode if settings.granted is None else settings.granted
    return {
        "permissions.defaultMode": settings.permission_mode.flag,
        "permissions.granted": min(granted, settings.permission_mode).flag,
        "permissions.network": settings.network,
        "permissions.git": settings.git,
    }


def _confined(settings: Settings) -> Confined:
    full = settings.permission_mode is Permission.DANGER_FULL_ACCESS
    return Confined(
        writes=settings.permission_mode is not Permission.READ_ONLY,
        git=full or settings.git == "writable",
        network=full or settings.network == "commands",
    )


def _commands(registry: Registry) -> frozenset[str]:
    """Tools whose subjects are commands."""
    return frozenset(name for name, entry in registry.entries.items() if entry.label.kind == "execute")


def vocabulary(registry: Registry) -> Vocabulary:
    """What rules may name, and how their patterns are read."""
    entries = registry.entries.items()
    spoken = {name for name, entry in entries if entry.label.kind == "fetch" and not entry.label.url_fields}
    sites = {name for name, entry in entries if entry.label.url_fields and not entry.label.path_fields}
    return Vocabulary(
        canonical=lambda name: registry.find(name).label.name,
        commands=_commands(registry) | spoken,
        sites=frozenset(sites),
    )


def _policy(settings: Settings, registry: Registry) -> Policy:
    words = vocabulary(registry)
    ceiling = settings.permission_mode
    return Policy(
        ceiling=ceiling,
        granted=ceiling if settings.granted is None else min(settings.granted, ceiling),
        deny=tuple(parse(text, words) for text in settings.deny),
        ask=tuple(parse(text, words) for text in settings.ask),
        allow=tuple(parse(text, words) for text in settings.allow),
    )


def _hides(policy: Policy, state: str, outputs: Outputs) -> Callable[[tuple[str, ...]], bool]:
    """What the operator hides, and the server's own state, which may lie in a root that is a home folder."""

    def hides(spellings: tuple[str, ...]) -> bool:
        absolute = spellings[-1]
        if policy.hides(spellings):
            return True
        kept = outputs.folder()
        return below(state, absolute) is not None and (kept is None or below(kept, absolute) is None)

    return hides


_PROTECTED = "is protected: programs act upon it unasked, so no tool changes it in workspace-write. "


def _protects(settings: Settings) -> Callable[[str], str | None]:
    """What file tools leave alone just as commands do."""
    roots = tuple(map(os.path.realpath, settings.root))
    writable = settings.git == "writable"

    def protects(absolute: str) -> str | None:
        if settings.permission_mode is not Permission.WORKSPACE_WRITE:
            return None
        inner = next((found for root in roots if (found := below(root, absolute)) is not None), "")
        if not is_protected(inner, git_writable=writable):
            return None
        git = not writable and not is_protected(inner, git_writable=True)
        remedy = "The operator can start the server with --git writable." if git else "Tell the user instead."
        return _PROTECTED + remedy

    return protects


def _may_hide(policy: Policy, state: str, roots: tuple[str, ...]) -> bool:
    """False spares a search the question for each file."""
    return policy.hides_anything or any(below(root, state) is not None for root in roots)
