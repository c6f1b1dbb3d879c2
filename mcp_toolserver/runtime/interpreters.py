"""Sessions of interpreters, by handle.

Each is a dialogue with `repl/driver.py`, which runs behind the walls of any command, together with the code.
Nobody but who has its handle reaches a session, and one piece of code runs in it at a time.
"""

import asyncio
import os
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

import anyio

from mcp_toolserver.capabilities.calls import Report
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.sessions import Evaluation, Language, Sessions, Snippet
from mcp_toolserver.errors import InvalidInput, NotFound, Unavailable
from mcp_toolserver.runtime.broker import Broker
from mcp_toolserver.runtime.capture import Sink
from mcp_toolserver.runtime.dialogue import converse
from mcp_toolserver.runtime.host_programs import KERNEL
from mcp_toolserver.runtime.processes import Folders, explains_nothing
from mcp_toolserver.runtime.session import Session, SessionLimits

NEW = "new"
"""Stands for a handle, and starts a session."""

EXTRA = "pip install 'mcp-toolserver[repl]'"

_DRIVER = str(Path(__file__).parent / "repl" / "driver.py")


@dataclass(frozen=True, kw_only=True)
class InterpreterLimits:
    """Bounds of all sessions together."""

    sessions: int = 8
    """At once, those for a single piece of code included."""
    idle_seconds: float = 1800.0
    """A session that is not used for so long ends."""
    session: SessionLimits = field(default_factory=SessionLimits)


@dataclass(kw_only=True)
class _Held:
    """A session, and who may use it: who knows the handle."""

    handle: str
    language: Language
    session: Session
    expiry: asyncio.TimerHandle | None = None
    dropped: bool = False

    def wake(self) -> None:
        """It is used, and does not expire meanwhile."""
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None


class Interpreters:
    """All sessions of the server.

    `explain` gets the output of code that failed, and may have sentences on why.
    """

    def __init__(
        self,
        broker: Broker,
        sink: Sink,
        limits: InterpreterLimits | None = None,
        *,
        explain: Callable[[str], tuple[str, ...]] = explains_nothing,
    ) -> None:
        self._broker = broker
        self._sink = sink
        self._limits = limits or InterpreterLimits()
        self._explain = explain
        self._held: dict[str, _Held] = {}
        self._starting = 0
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    @cached_property
    def has_kernel(self) -> bool:
        """See `Sessions.has_kernel`."""
        return all(find_spec(name) is not None for name in KERNEL)

    def within(self, folders: Folders) -> Sessions:
        """The same sessions; those started here start in `folders`."""
        return _Within(self, folders)

    async def run_in(self, folders: Folders, snippet: Snippet, report: Report) -> Evaluation:
        """See `Sessions.run`."""
        is_known = snippet.session not in ("", NEW)
        held = self._find(snippet) if is_known else await self._start(folders, snippet.language)
        async with held.session.turn:
            if held.dropped:
                raise self._unknown()
            held.wake()
            try:
                evaluation = await held.session.run(snippet.code, snippet.timeout, report)
            except BaseException:
                await self._put_back(held, keep=is_known)
                raise
            goes_on = snippet.session != "" and not snippet.last and not evaluation.gone
            notes = await self._put_back(held, keep=goes_on)
            return self._told(evaluation, held, notes)

    async def aclose(self) -> None:
        """End every session, and start no more."""
        self._closed = True
        for held in tuple(self._held.values()):
            self._expire(held)
        await asyncio.gather(*self._ending)

    def _told(self, evaluation: Evaluation, held: _Held, notes: tuple[str, ...]) -> Evaluation:
        state = evaluation.state
        why = self._explain(state.text + state.tail) if state.exit_status != 0 else ()
        return replace(
            evaluation,
            state=replace(state, notes=(*notes, *why)),
            session="" if held.dropped else held.handle,
        )

    async def _start(self, folders: Folders, language: Language) -> _Held:
        self._refuse(language)
        self._starting += 1
        try:
            session = await self._started(folders, language)
        finally:
            self._starting -= 1
        held = _Held(handle=f"repl_{secrets.token_hex(16)}", language=language, session=session)
        self._held[held.handle] = held
        return held

    def _refuse(self, language: Language) -> None:
        """Raises: Unavailable: no session of this language can be started now."""
        if self._closed:
            raise Unavailable("The server is shutting down; no session is started any more.")
        if language == "python" and not self.has_kernel:
            raise Unavailable(
                "A Python session needs a Jupyter kernel, which the operator of this server gets with "
                f"{EXTRA}. Without `session`, Python code runs in a process of its own."
            )
        if len(self._held) + self._starting >= self._limits.sessions:
            raise Unavailable(
                f"{self._limits.sessions} sessions run already, and no more may. End one that is not needed "
                "with end_session, or go on in it."
            )

    async def _started(self, folders: Folders, language: Language) -> Session:
        cwd = folders.folder(CanonicalPath("."))
        try:
            dialogue = await converse(self._broker, (sys.executable, "-I", _DRIVER, language), cwd=cwd)
        finally:
            os.close(cwd)
        session = Session(dialogue, self._sink, self._limits.session)
        try:
            missing = await session.start()
        except BaseException:
            await session.end()
            raise
        if missing:
            await session.end()
            raise Unavailable(f"A session of {language} needs {missing}, which commands do not find here.")
        return session

    def _find(self, snippet: Snippet) -> _Held:
        held = self._held.get(snippet.session)
        if held is None:
            raise self._unknown()
        if held.language != snippet.language:
            raise InvalidInput(
                f"This session speaks {held.language}, not {snippet.language}. Start another with session "
                f'"{NEW}".'
            )
        return held

    def _unknown(self) -> NotFound:
        return NotFound(
            "No session has this handle: it was never given, or the session has ended. Unused, one ends "
            f'after {self._limits.idle_seconds / 60:g} minutes. Start one with session "{NEW}".'
        )

    async def _put_back(self, held: _Held, *, keep: bool) -> tuple[str, ...]:
        """Have a session wait for more, or end it; what there is to say of its end."""
        if keep and held.session.lives and not self._closed:
            loop = asyncio.get_running_loop()
            held.expiry = loop.call_later(self._limits.idle_seconds, self._expire, held)
            return ()
        with anyio.CancelScope(shield=True):
            await self._drop(held)
        return held.session.notes

    async def _drop(self, held: _Held) -> None:
        self._forget(held)
        await held.session.end()

    def _forget(self, held: _Held) -> None:
        held.wake()
        held.dropped = True
        self._held.pop(held.handle, None)

    def _expire(self, held: _Held) -> None:
        self._forget(held)
        ending = asyncio.get_running_loop().create_task(self._drop(held))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)


@dataclass(frozen=True)
class _Within:
    """Implements `Sessions`."""

    interpreters: Interpreters
    folders: Folders

    @property
    def has_kernel(self) -> bool:
        return self.interpreters.has_kernel

    async def run(self, snippet: Snippet, report: Report) -> Evaluation:
        return await self.interpreters.run_in(self.folders, snippet, report)
