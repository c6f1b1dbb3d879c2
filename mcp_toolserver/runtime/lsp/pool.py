"""Runs at most a few language servers, one per project and language, and ends idle ones."""

import asyncio
import os
import sys
import sysconfig
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic

import anyio

from mcp_toolserver.capabilities.call_scope import LOCAL
from mcp_toolserver.errors import Unavailable
from mcp_toolserver.runtime.lsp.connection import ConnectionClosed, ResponseError
from mcp_toolserver.runtime.lsp.session import ServerLimits, Session
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.interactive import InteractiveProcess, start_interactive
from mcp_toolserver.runtime.which import is_usable
from mcp_toolserver.text.code.languages import Language


class ServerUnavailable(Exception):
    """No language server is available; the text is a sentence that says why."""


@dataclass(frozen=True, kw_only=True)
class Project:
    folder: str
    """Absolute."""
    language: Language
    roots: tuple[str, ...] | None = None
    """The accessible roots; None for all. Clients with other roots get a separate server."""
    owner: str = LOCAL
    """Shares a loopback interface with the server, so each owner gets a separate one."""
    is_read_only: bool = False
    """See `Folders.is_read_only`."""
    keeps_git: bool = False
    """See `Folders.keeps_git`."""


StartServer = Callable[[Sequence[str], int, Project], Awaitable[InteractiveProcess]]
"""Starts a program in the sandbox for a project, in the folder open as a descriptor, which it closes."""


@dataclass(kw_only=True, eq=False)
class _Slot:
    session: Session | None = None
    is_starting: bool = False
    uses: int = 0
    last_used: float = 0.0
    failures: list[float] = field(default_factory=list[float])
    timer: asyncio.TimerHandle | None = None
    lock: anyio.Lock = field(default_factory=anyio.Lock)

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


async def start_server(
    broker: Broker, argv: Sequence[str], cwd: int, project: Project, *, has_caches: bool
) -> InteractiveProcess:
    """See `StartServer`. Unless it `has_caches`, its caches are in the temporary folder of the session:
    commands cannot write to the user's cache folders."""
    name = f"the language server {os.path.basename(argv[0])}"
    if project.language.caches and not has_caches:
        assignments = " ".join(f'{one}="$TMPDIR/{one}"' for one in project.language.caches)
        argv = ("sh", "-c", f'{assignments} exec "$@"', "sh", *argv)
    return await start_interactive(
        broker,
        argv,
        cwd=cwd,
        roots=project.roots,
        read_only=project.is_read_only,
        keeps_git=project.keeps_git,
        owner=project.owner,
        name=name,
    )


def search_folders(path_entries: Sequence[str]) -> tuple[str, ...]:
    """Return the folders to search for servers: that of our Python, then the PATH."""
    own = (os.path.dirname(sys.executable), sysconfig.get_path("scripts"))
    return tuple(dict.fromkeys((*own, *filter(os.path.isabs, path_entries))))


def find_executables(name: str, where: Sequence[str], roots: Sequence[str]) -> list[str]:
    """Return the absolute paths of executables called `name` outside `roots`, each once. Nothing is run."""
    files = (os.path.join(place, name) for place in where)
    found = (file for file in files if is_usable(file, roots))
    return list({os.path.realpath(file): file for file in reversed(list(found))}.values())[::-1]


class Pool:
    """Starts, reuses and ends servers. Executables are searched in `places`, but not inside `roots`."""

    def __init__(
        self,
        start: StartServer,
        places: Sequence[str],
        roots: Sequence[str],
        limits: ServerLimits | None = None,
    ) -> None:
        self._start = start
        self._places = places
        self._roots = roots
        self._limits = limits or ServerLimits()
        self._slots: dict[Project, _Slot] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    @asynccontextmanager
    async def using(self, project: Project, folder: Callable[[], int]) -> AsyncGenerator[Session]:
        """Yield the server of a project, started if needed; `folder` opens its folder.

        Raises:
            ServerUnavailable.
        """
        slot = self._slots.setdefault(project, _Slot())
        async with slot.lock:
            session = await self._ensure_running(slot, project, folder)
            slot.uses += 1
        slot.stop_timer()
        try:
            yield session
        finally:
            slot.uses -= 1
            slot.last_used = monotonic()
            if session.connection.close_reason:
                await self._end(slot, session)
            elif not slot.uses:
                # The next use cancels it.
                loop = asyncio.get_running_loop()
                slot.timer = loop.call_later(self._limits.idle, self._end_soon, slot, session, "was idle")

    def forget(self, owner: str) -> None:
        """End the servers of an owner who has disconnected; nobody else may use them."""
        for project, slot in [item for item in self._slots.items() if item[0].owner == owner]:
            slot.stop_timer()
            if slot.session is not None:
                self._end_soon(slot, slot.session, "was ended with its client's session")
            if not slot.uses and not slot.is_starting:
                del self._slots[project]

    async def forgotten(self) -> None:
        """Wait until the servers that `forget` ended are gone."""
        await asyncio.gather(*self._ending)

    async def aclose(self) -> None:
        """End every server and refuse new ones."""
        self._closed = True
        for slot in self._slots.values():
            slot.stop_timer()
            if slot.session is not None:
                await self._end(slot, slot.session, "was ended with this server")
        await asyncio.gather(*self._ending)

    def has(self, project: Project) -> bool:
        slot = self._slots.get(project)
        return slot is not None and slot.session is not None

    def installed(self, language: Language) -> list[tuple[str, ...]]:
        """Return the installed servers of a language, as absolute paths with arguments.

        Raises:
            ServerUnavailable.
        """
        commands = [
            (program, *arguments)
            for name, *arguments in map(str.split, language.servers)
            for program in find_executables(name, self._places, self._roots)
        ]
        if not commands:
            names = ", ".join(server.split()[0] for server in language.servers)
            raise ServerUnavailable(f"No language server for {language.name} is installed ({names}).")
        return commands

    async def _ensure_running(self, slot: _Slot, project: Project, folder: Callable[[], int]) -> Session:
        if slot.session is not None:
            if not slot.session.connection.close_reason:
                return slot.session
            await self._end(slot, slot.session)
        self._check_failures(slot, project)
        await self._make_room()
        slot.is_starting = True
        try:
            slot.session = await self._start_first(slot, project, folder)
        finally:
            slot.is_starting = False
        return slot.session

    def _check_failures(self, slot: _Slot, project: Project) -> None:
        since = monotonic() - self._limits.failure_window
        slot.failures = [time for time in slot.failures if time >= since]
        if len(slot.failures) >= self._limits.failures:
            raise ServerUnavailable(
                f"The language server for {project.language.name} failed {len(slot.failures)} times in a "
                "short while, so it is not started again for now."
            )

    async def _make_room(self) -> None:
        if self._closed:
            raise ServerUnavailable("This server is shutting down.")
        while True:
            there = [slot for slot in self._slots.values() if slot.session or slot.is_starting]
            if len(there) < self._limits.running:
                return
            idle = [(slot.last_used, slot, slot.session) for slot in there if slot.session and not slot.uses]
            if not idle:
                raise ServerUnavailable(
                    f"{len(there)} language servers are busy already, and no more may run."
                )
            _, slot, session = min(idle, key=lambda one: one[0])
            await self._end(slot, session, "was ended to make room")

    async def _start_first(self, slot: _Slot, project: Project, folder: Callable[[], int]) -> Session:
        """Return the first server that completes initialization."""
        commands = self.installed(project.language)
        for command in commands:
            try:
                return await self._start_one(project, command, folder)
            except (ConnectionClosed, ResponseError, TimeoutError, Unavailable):
                continue
        slot.failures.append(monotonic())
        names = ", ".join(dict.fromkeys(os.path.basename(command[0]) for command in commands))
        raise ServerUnavailable(
            f"The language server for {project.language.name} ({names}) could not be started."
        )

    async def _start_one(
        self, project: Project, command: tuple[str, ...], folder: Callable[[], int]
    ) -> Session:
        process = await self._start(command, folder(), project)
        name = os.path.basename(command[0])
        session = Session(process, name, project.folder, project.language, self._limits)
        try:
            await session.initialize()
        except BaseException:
            await session.connection.close("could not be started")
            raise
        return session

    async def _end(self, slot: _Slot, session: Session, why: str = "") -> None:
        """End a server; without a reason, count it as failed."""
        if slot.session is not session:
            return
        slot.session = None
        if not why:
            slot.failures.append(monotonic())
        await session.connection.close(why)

    def _end_soon(self, slot: _Slot, session: Session, why: str) -> None:
        task = asyncio.get_running_loop().create_task(self._end(slot, session, why))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
