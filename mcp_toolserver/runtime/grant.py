"""This machine as the dispatcher sees it, and the runtime of one call."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from anyio import to_thread

from mcp_toolserver.capabilities.origin import Origin
from mcp_toolserver.capabilities.prices import Capability
from mcp_toolserver.conversation import Human
from mcp_toolserver.errors import RegistrationError
from mcp_toolserver.limits import Spiller
from mcp_toolserver.policy.narrowing import Narrowing
from mcp_toolserver.runtime.clock import SystemClock
from mcp_toolserver.runtime.desktop_programs import DESKTOP
from mcp_toolserver.runtime.fs import Workspace
from mcp_toolserver.spec import Runtime

if TYPE_CHECKING:
    from mcp_toolserver.capabilities.calls import Report, Scope, Spill
    from mcp_toolserver.capabilities.catalogue import Catalogue
    from mcp_toolserver.capabilities.clock import Clock
    from mcp_toolserver.capabilities.clones import Clones
    from mcp_toolserver.capabilities.containers import Containers
    from mcp_toolserver.capabilities.desktop import Desktop
    from mcp_toolserver.capabilities.files import CanonicalPath, Files
    from mcp_toolserver.capabilities.git import Git
    from mcp_toolserver.capabilities.human import Ask, Tell
    from mcp_toolserver.capabilities.kept import Preferences, Todos
    from mcp_toolserver.capabilities.languages import Languages
    from mcp_toolserver.capabilities.prices import Prices
    from mcp_toolserver.capabilities.processes import Jobs, Processes
    from mcp_toolserver.capabilities.search import Search
    from mcp_toolserver.capabilities.sessions import Sessions
    from mcp_toolserver.capabilities.web import Fetch, Send
    from mcp_toolserver.runtime.web.web import Web

T = TypeVar("T")

_FILES = frozenset({Capability.FS_READ, Capability.FS_WRITE})


@dataclass(frozen=True, kw_only=True)
class Granted:
    """The runtime of one call: what its tool declared, and nothing else."""

    report: Report
    files: Files | None = None
    searching: Search | None = None
    repositories: Git | None = None
    cloning: Clones | None = None
    commands: Processes | None = None
    background: Jobs | None = None
    interpreters: Sessions | None = None
    powershell_start: Sequence[str] | None = None
    engine: Containers | None = None
    time: Clock | None = None
    asking: Ask | None = None
    telling: Tell | None = None
    lists: Todos | None = None
    remembered: Preferences | None = None
    fetching: Fetch | None = None
    sending: Send | None = None
    others: Catalogue | None = None
    caller: Origin | None = None
    code: Languages | None = None
    screen: Desktop | None = None

    async def compute(self, work: Callable[[], T]) -> T:
        """In a worker thread, which a cancelled call does not wait for."""
        return await to_thread.run_sync(work, abandon_on_cancel=True)

    @property
    def fs(self) -> Files:
        """Needs fs_read or fs_write."""
        return _declared(self.files, "fs_read or fs_write")

    @property
    def search(self) -> Search:
        """Needs search."""
        return _declared(self.searching, "search")

    @property
    def git(self) -> Git:
        """Needs git."""
        return _declared(self.repositories, "git")

    @property
    def clones(self) -> Clones:
        """Needs clones."""
        return _declared(self.cloning, "clones")

    @property
    def processes(self) -> Processes:
        """Needs process."""
        return _declared(self.commands, "process")

    @property
    def jobs(self) -> Jobs:
        """Needs jobs."""
        return _declared(self.background, "jobs")

    @property
    def sessions(self) -> Sessions:
        """Needs sessions."""
        return _declared(self.interpreters, "sessions")

    @property
    def powershell(self) -> Sequence[str]:
        """Needs powershell."""
        return _declared(self.powershell_start, "powershell")

    @property
    def containers(self) -> Containers:
        """Needs containers."""
        return _declared(self.engine, "containers")

    @property
    def clock(self) -> Clock:
        """Needs clock."""
        return _declared(self.time, "clock")

    @property
    def ask(self) -> Ask:
        """Needs ask."""
        return _declared(self.asking, "ask")

    @property
    def tell(self) -> Tell:
        """Needs tell."""
        return _declared(self.telling, "tell")

    @property
    def todos(self) -> Todos:
        """Needs todos."""
        return _declared(self.lists, "todos")

    @property
    def preferences(self) -> Preferences:
        """Needs preferences."""
        return _declared(self.remembered, "preferences")

    @property
    def web(self) -> Fetch:
        """Needs fetch."""
        return _declared(self.fetching, "fetch")

    @property
    def http(self) -> Send:
        """Needs send."""
        return _declared(self.sending, "send")

    @property
    def catalogue(self) -> Catalogue:
        """Needs catalogue."""
        return _declared(self.others, "catalogue")

    @property
    def origin(self) -> Origin:
        """Needs own_code."""
        return _declared(self.caller, "own_code")

    @property
    def languages(self) -> Languages:
        """Needs languages."""
        return _declared(self.code, "languages")

    @property
    def desktop(self) -> Desktop:
        """Needs one of the capabilities of the desktop, and does what those needed allow."""
        return _declared(self.screen, "any capability of the desktop")


def _declared(capability: T | None, name: str) -> T:
    if capability is None:
        raise RegistrationError(f"the tool uses {name} but does not declare it")
    return capability


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What there is here, and what it costs."""

    prices: Prices
    absent: Mapping[Capability, str] = field(default_factory=dict[Capability, str])
    """Why a capability has no price here, where a missing wall is the reason."""
    withheld: Mapping[Capability, str] = field(default_factory=dict[Capability, str])
    """Why it has none, where a setting or a program that is not installed is the reason."""
    forbidden: Mapping[Capability, str] = field(default_factory=dict[Capability, str])
    """Why it is not there for this call, where the client's own policy is the reason."""
    open_world: frozenset[Capability] = frozenset({Capability.PROCESS})
    """What reaches beyond this machine's files."""
    workspace: Workspace
    outputs: Spiller
    search: Callable[[Workspace], Search] | None
    processes: Callable[[Workspace, Scope], Processes] | None
    jobs: Jobs | None
    sessions: Callable[[Workspace], Sessions] | None = None
    powershell: Sequence[str] | None = None
    containers: Callable[[Workspace, Scope], Containers] | None = None
    git: Callable[[Workspace], Git] | None = None
    clones: Callable[[Workspace], Clones] | None = None
    clock: Clock = field(default_factory=SystemClock)
    todos: Todos | None = None
    preferences: Preferences | None = None
    web: Callable[[], Web] | None = None
    languages: Callable[[Workspace], Languages] | None = None
    desktop: Callable[[Workspace, frozenset[Capability]], Desktop] | None = None

    def within(self, roots: Sequence[str]) -> Machine:
        """The same machine, confined to those of `roots` that lie inside the workspace."""
        return replace(self, workspace=self.workspace.within(roots))

    def narrowed(self, narrowing: Narrowing) -> Machine:
        """The same machine, with no more than `narrowing` allows; commands only where walls keep to it."""
        within = narrowing.resolved(os.path.realpath)
        place, roots = self.workspace, self.workspace.roots
        held = all(map(within.writes, roots)) and all(
            place.is_protected(kept) for root in roots for kept in within.keeps(root)
        )

        def objects(absolute: str) -> str | None:
            why = f"may not be written: {within.whose} allows that elsewhere only. Ask the user."
            return None if within.writes(absolute) else why

        lost = within.lost(self.prices, self.open_world, held=held)
        return replace(self, workspace=place.guarded(objects), forbidden=lost)

    def canonical(self, path: str) -> CanonicalPath:
        """See `Workspace.canonical`."""
        return self.workspace.canonical(path)

    def spellings(self, path: CanonicalPath) -> tuple[str, ...]:
        """See `Workspace.spellings`."""
        return self.workspace.spellings(path)

    async def spill(self, text: str) -> Spill:
        """See `Spiller.spill`."""
        return await self.outputs.spill(text)

    def grant(self, needs: frozenset[Capability], report: Report, human: Human, scope: Scope) -> Runtime:
        """A runtime with `needs` and nothing else."""
        files = self.workspace.files(write=Capability.FS_WRITE in needs) if needs & _FILES else None
        search = self.search if Capability.SEARCH in needs else None
        git = self.git if Capability.GIT in needs else None
        clones = self.clones if Capability.CLONES in needs else None
        processes = self.processes if Capability.PROCESS in needs else None
        languages = self.languages if Capability.LANGUAGES in needs else None
        sessions = self.sessions if Capability.SESSIONS in needs else None
        containers = self.containers if Capability.CONTAINERS in needs else None
        desktop = self.desktop if needs.intersection(DESKTOP) else None
        return Granted(
            report=report,
            files=files,
            searching=search and search(self.workspace),
            repositories=git and git(self.workspace),
            cloning=clones and clones(self.workspace),
            commands=processes and processes(self.workspace, scope),
            background=self.jobs if Capability.JOBS in needs else None,
            interpreters=sessions and sessions(self.workspace),
            powershell_start=self.powershell if Capability.POWERSHELL in needs else None,
            engine=containers and containers(self.workspace, scope),
            time=self.clock if Capability.CLOCK in needs else None,
            asking=human.ask if Capability.ASK in needs else None,
            telling=human.tell if Capability.TELL in needs else None,
            lists=self.todos if Capability.TODOS in needs else None,
            remembered=self.preferences if Capability.PREFERENCES in needs else None,
            fetching=self.web and self.web().fetching(scope) if Capability.FETCH in needs else None,
            sending=self.web and self.web().sending(scope) if Capability.SEND in needs else None,
            others=scope.catalogue if Capability.CATALOGUE in needs else None,
            caller=self._origin(scope) if Capability.OWN_CODE in needs else None,
            screen=desktop and desktop(self.workspace, needs),
            code=languages and languages(self.workspace),
        )

    def _origin(self, scope: Scope) -> Origin:
        return Origin(folder=next(iter(self.workspace.roots), ""), session=scope.session)
