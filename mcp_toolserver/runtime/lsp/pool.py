"""The language servers that run: one for each project and language, a few at once, none for longer than it is
of use.
"""

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic

import anyio

from mcp_toolserver.errors import Unavailable
from mcp_toolserver.runtime.lsp.programs import find_programs
from mcp_toolserver.runtime.lsp.session import Session, SessionLimits
from mcp_toolserver.runtime.lsp.talk import Ended, Partner, Refused
from mcp_toolserver.text.code_languages import Language

Start = Callable[[Sequence[str], int], Awaitable[Partner]]
"""Starts a program, behind the walls of a command, in the folder open as a descriptor."""


class NoServer(Exception):
    """No language server answers; the text is a sentence that says why."""


@dataclass(frozen=True, kw_only=True)
class Project:
    """What one server serves."""

    folder: str
    """Absolute."""
    language: Language


@dataclass(frozen=True, kw_only=True)
class PoolLimits:
    """Bounds of all servers together."""

    running: int = 4
    idle: float = 600.0
    """Seconds until one that nobody asks is ended."""
    failures: int = 3
    """So many ends of one ..."""
    forgotten: float = 600.0
    """... within so many seconds, and it is not started again until some of them are that long ago."""
    session: SessionLimits = field(default_factory=SessionLimits)


@dataclass(kw_only=True, eq=False)
class _Seat:
    """The place of one server."""

    session: Session | None = None
    is_starting: bool = False
    uses: int = 0
    last_used: float = 0.0
    failures: deque[float] = field(default_factory=deque[float])
    timer: asyncio.TimerHandle | None = None
    lock: anyio.Lock = field(default_factory=anyio.Lock)


class Pool:
    """Starts, keeps and ends servers. `places` are the folders of their programs; none of `roots` is trusted
    to hold one.
    """

    def __init__(
        self, start: Start, places: Sequence[str], roots: Sequence[str], limits: PoolLimits | None = None
    ) -> None:
        self._start = start
        self._places = places
        self._roots = roots
        self._limits = limits or PoolLimits()
        self._seats: dict[Project, _Seat] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    @asynccontextmanager
    async def using(self, project: Project, folder: Callable[[], int]) -> AsyncGenerator[Session]:
        """The server of a project, started if it is not there. `folder` opens the project's folder.

        Raises:
            NoServer: there is none.
        """
        seat = self._seats.setdefault(project, _Seat())
        async with seat.lock:
            session = await self._alive(seat, project, folder)
            seat.uses += 1
        if seat.timer is not None:
            seat.timer.cancel()
        try:
            yield session
        finally:
            seat.uses -= 1
            seat.last_used = monotonic()
            if session.talk.why_over:
                await self._end(seat, session)
            elif not seat.uses:
                loop = asyncio.get_running_loop()
                seat.timer = loop.call_later(self._limits.idle, self._expire, seat, session)

    async def aclose(self) -> None:
        """End every server, and start no more."""
        self._closed = True
        for seat in self._seats.values():
            if seat.timer is not None:
                seat.timer.cancel()
            if seat.session is not None:
                await self._end(seat, seat.session, "was ended with this server")
        await asyncio.gather(*self._ending)

    def has(self, project: Project) -> bool:
        """Whether its server runs."""
        seat = self._seats.get(project)
        return seat is not None and seat.session is not None

    def installed(self, language: Language) -> list[tuple[str, ...]]:
        """The servers of a language that are there, by absolute path and with their arguments.

        Raises:
            NoServer: there is none.
        """
        commands = [
            (program, *arguments)
            for name, *arguments in language.servers
            for program in find_programs(name, self._places, self._roots)
        ]
        if not commands:
            raise NoServer(f"No language server for {language.name} is installed ({language.programs}).")
        return commands

    async def _alive(self, seat: _Seat, project: Project, folder: Callable[[], int]) -> Session:
        if seat.session is not None:
            if not seat.session.talk.why_over:
                return seat.session
            await self._end(seat, seat.session)
        self._refuse_failing(seat, project)
        commands = self.installed(project.language)
        await self._make_room()
        seat.is_starting = True
        try:
            seat.session = await self._started(seat, project, commands, folder)
        finally:
            seat.is_starting = False
        return seat.session

    def _refuse_failing(self, seat: _Seat, project: Project) -> None:
        since = monotonic() - self._limits.forgotten
        while seat.failures and seat.failures[0] < since:
            seat.failures.popleft()
        if len(seat.failures) >= self._limits.failures:
            raise NoServer(
                f"The language server for {project.language.name} failed {len(seat.failures)} times in a "
                "short while, and is not started again for now."
            )

    async def _make_room(self) -> None:
        if self._closed:
            raise NoServer("This server is shutting down.")
        while True:
            there = [seat for seat in self._seats.values() if seat.session is not None or seat.is_starting]
            if len(there) < self._limits.running:
                return
            idle = [seat for seat in there if seat.session is not None and not seat.uses]
            if not idle:
                raise NoServer(f"{len(there)} language servers are busy already, and no more may run.")
            eldest = min(idle, key=lambda seat: seat.last_used)
            if eldest.session is not None:
                await self._end(eldest, eldest.session, "was ended to make room")

    async def _started(
        self,
        seat: _Seat,
        project: Project,
        commands: Sequence[tuple[str, ...]],
        folder: Callable[[], int],
    ) -> Session:
        """The first of the commands that gets as far as to introduce itself."""
        for command in commands:
            session = Session(
                name=os.path.basename(command[0]),
                folder=project.folder,
                language=project.language,
                limits=self._limits.session,
            )
            try:
                await self._begun(session, command, folder)
            except (Ended, Refused, TimeoutError, Unavailable):
                continue
            return session
        seat.failures.append(monotonic())
        names = ", ".join(dict.fromkeys(os.path.basename(command[0]) for command in commands))
        raise NoServer(f"The language server for {project.language.name} ({names}) could not be started.")

    async def _begun(self, session: Session, command: tuple[str, ...], folder: Callable[[], int]) -> None:
        cwd = folder()
        try:
            partner = await self._start(command, cwd)
        finally:
            os.close(cwd)
        try:
            await session.begin(partner)
        except BaseException:
            await session.talk.close("could not be started")
            raise

    async def _end(self, seat: _Seat, session: Session, why: str = "") -> None:
        """End a server; one that ended by itself has failed."""
        if seat.session is not session:
            return
        seat.session = None
        if not why:
            seat.failures.append(monotonic())
        await session.talk.close(why)

    def _expire(self, seat: _Seat, session: Session) -> None:
        if not seat.uses:
            task = asyncio.get_running_loop().create_task(self._end(seat, session, "was idle"))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
