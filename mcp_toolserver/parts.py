"""What the server has beside files and commands. Each part is imported and made when it is first used: a
client waits for everything that a start imports.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mcp_toolserver.later import Later, LaterPart
from mcp_toolserver.runtime.broker import Broker
from mcp_toolserver.runtime.fs import Workspace
from mcp_toolserver.runtime.helper_programs import HelperPrograms
from mcp_toolserver.runtime.processes import Commands
from mcp_toolserver.runtime.programs import Programs
from mcp_toolserver.runtime.sandbox.bounds import CommandBounds
from mcp_toolserver.runtime.web.options import WebOptions
from mcp_toolserver.settings import Settings
from mcp_toolserver.stores.database import Database
from mcp_toolserver.stores.outputs import Outputs
from mcp_toolserver.text.denials import Confined, explain

if TYPE_CHECKING:
    from mcp_toolserver.capabilities.clones import Clones
    from mcp_toolserver.capabilities.desktop import Desktop
    from mcp_toolserver.capabilities.git import Git
    from mcp_toolserver.capabilities.prices import Capability
    from mcp_toolserver.capabilities.search import Search
    from mcp_toolserver.runtime.containers import Containers
    from mcp_toolserver.runtime.git import Git as GitProgram
    from mcp_toolserver.runtime.interpreters import Interpreters
    from mcp_toolserver.runtime.language_servers import LanguageServers
    from mcp_toolserver.runtime.web.web import Web
    from mcp_toolserver.stores.tasks import StoredTasks


def containers(
    broker: Broker | None, commands: Commands | None, program: str | None, settings: Settings
) -> LaterPart[Containers] | None:
    """Commands in containers, where there is an engine."""
    if broker is None or commands is None or program is None:
        return None

    def make() -> Containers:
        from mcp_toolserver.runtime.container_engine import Engine
        from mcp_toolserver.runtime.containers import Containers

        engine = Engine(
            program=program,
            image=settings.container_image,
            network=settings.network == "commands",
            processes=settings.command_processes,
            memory=settings.command_memory << 20 or CommandBounds().memory,
            user=f"{os.getuid()}:{os.getgid()}",
        )
        return Containers(broker, commands, engine, failover=settings.containers == "failover")

    return LaterPart(make)


def languages(
    starting: Broker | None,
    path: Sequence[str],
    roots: tuple[str, ...],
    search: Callable[[Workspace], Search] | None,
    *,
    hiding: bool,
) -> LaterPart[LanguageServers]:
    """Language servers, which `starting` starts; without it, a search in their place."""

    def make() -> LanguageServers:
        from mcp_toolserver.runtime.language_servers import LanguageServers

        return LanguageServers(starting, path, roots, search, hiding=hiding)

    return LaterPart(make)


def sessions(broker: Broker, outputs: Outputs, confined: Confined) -> LaterPart[Interpreters]:
    """Interpreters that keep what they know from call to call."""

    def make() -> Interpreters:
        from mcp_toolserver.runtime.interpreters import Interpreters

        return Interpreters(broker, outputs, explain=lambda output: explain(output, confined))

    return LaterPart(make)


def desktop(helpers: HelperPrograms) -> Callable[[Workspace, frozenset[Capability]], Desktop]:
    """The desktop that `helpers` reach."""

    def within(workspace: Workspace, needs: frozenset[Capability]) -> Desktop:
        from mcp_toolserver.runtime.desktop import reached

        return reached(helpers)(workspace, needs)

    return within


def web(options: WebOptions) -> Later[Web]:
    """The web, as far as `options` let it be reached."""

    def make() -> Web:
        from mcp_toolserver.runtime.web.web import Web

        return Web(options)

    return Later(make)


def _git_program(broker: Broker, program: str) -> Later[GitProgram]:
    def make() -> GitProgram:
        from mcp_toolserver.runtime.git import Git

        return Git(Programs(broker), program, os.path.expanduser("~"))

    return Later(make)


def git(broker: Broker | None, program: str | None, *, hiding: bool) -> Callable[[Workspace], Git] | None:
    """Questions to git, where there is one."""
    if broker is None or program is None:
        return None
    started = _git_program(broker, program)

    def within(workspace: Workspace) -> Git:
        from mcp_toolserver.runtime.git_answers import Answers
        from mcp_toolserver.runtime.git_repository import Reading

        return Answers(reading=Reading(git=started(), workspace=workspace, hiding=hiding))

    return within


def clones(
    broker: Broker | None, program: str | None, web: Later[Web] | None, *, hiding: bool
) -> Callable[[Workspace], Clones] | None:
    """Clones by git, from where `web` lets it."""
    if broker is None or program is None:
        return None
    started = _git_program(broker, program)

    def within(workspace: Workspace) -> Clones:
        from mcp_toolserver.runtime.git_clone import Cloning
        from mcp_toolserver.runtime.git_repository import Reading

        return Cloning(
            broker=broker,
            program=program,
            reading=Reading(git=started(), workspace=workspace, hiding=hiding),
            guard=web and web().guard,
        )

    return within


def search(
    broker: Broker | None, ripgrep: str | None, *, hiding: bool
) -> Callable[[Workspace], Search] | None:
    """Searches by ripgrep, or by the stand-in for it."""
    if broker is None:
        return None
    programs = Programs(broker)
    held = broker.proof.helpers == "landlock"

    def within(workspace: Workspace) -> Search:
        from mcp_toolserver.runtime.search import Ripgrep

        return Ripgrep(launcher=programs, workspace=workspace, program=ripgrep, hiding=hiding, held=held)

    return within


def tasks(database: Database) -> LaterPart[StoredTasks]:
    """What is kept of tasks."""

    def make() -> StoredTasks:
        from mcp_toolserver.stores.tasks import StoredTasks

        return StoredTasks(database)

    return LaterPart(make)
