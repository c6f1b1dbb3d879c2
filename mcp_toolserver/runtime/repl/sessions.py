"""Manages interpreter sessions by handle.

Each session is a process of `repl/sandboxed/driver.py`, which runs in the command sandbox together with the
code. Only the owner can use a session, by its handle, and one evaluation runs in it at a time.
"""

import asyncio
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import anyio

from mcp_toolserver.capabilities.call_scope import Report
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.processes import Evaluation, Language, Snippet
from mcp_toolserver.errors import Conflict, Denied, InvalidInput, NotFound, Unavailable
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.child import SetupFailed
from mcp_toolserver.runtime.processes.commands import Folders
from mcp_toolserver.runtime.processes.interactive import start_interactive
from mcp_toolserver.runtime.repl.session import Session, SessionLimits
from mcp_toolserver.runtime.short_handle import short_handle
from mcp_toolserver.stores.saved_outputs import OutputStore

NEW = "new"
"""Starts a new session when given in place of a handle."""

_DRIVER = str(Path(__file__).parent / "sandboxed" / "driver.py")


@dataclass(frozen=True, kw_only=True)
class InterpreterLimits:
    sessions: int = 8
    """Concurrent sessions, including those of single evaluations."""
    idle_seconds: float = 1800.0
    """Unused sessions end after this time."""
    session: SessionLimits = field(default_factory=SessionLimits)


class Interpreters:
    """All sessions of the server.

    `explain` returns sentences on what failed, from the output and the exit status.
    """

    def __init__(
        self,
        broker: Broker,
        sink: OutputStore,
        limits: InterpreterLimits | None = None,
        *,
        explain: Callable[[str, int | None, bool], tuple[str, ...]] = lambda _, __, ___: (),
    ) -> None:
        self._broker = broker
        self._sink = sink
        self._limits = limits or InterpreterLimits()
        self._explain = explain
        self._sessions: dict[str, Session] = {}
        self._starting: set[str] = set()
        """The handles of sessions that are starting."""
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    async def run_in(self, folders: Folders, owner: str, snippet: Snippet, report: Report) -> Evaluation:
        """See `CallSessions.run`. A new session survives the cancellation of its first call; the owner's next
        result names its handle."""
        is_new = snippet.session in ("", NEW)
        session = (
            await self._start(folders, owner, snippet.language)
            if is_new
            else self._find(snippet, owner, folders)
        )
        # Nobody else has the handle of a new session, so its lock is free.
        async with nullcontext() if is_new else session.lock:
            if session.is_ended:
                raise self._unknown_handle()
            session.cancel_expiry()
            try:
                evaluation = await session.run(
                    snippet.code, snippet.timeout, report, last=not snippet.session
                )
            except BaseException:
                await self._release(session, keep=not is_new or _is_kept(snippet))
                session.is_handle_unsent |= is_new
                raise
            notes = await self._release(session, keep=_is_kept(snippet) and not evaluation.gone)
            started = (session.note,) if is_new and session.note else ()
            return self._finish(evaluation, session, (*started, *notes, *self._unsent_handle_notes(owner)))

    def forget(self, owner: str) -> None:
        """End the sessions of an owner who has disconnected; nobody else may use them."""
        for session in [one for one in self._sessions.values() if one.owner == owner]:
            self._expire(session)

    async def forgotten(self) -> None:
        """Wait until the sessions that `forget` ended are gone."""
        await asyncio.gather(*self._ending)

    async def aclose(self) -> None:
        """End every session, and start no more."""
        self._closed = True
        for session in tuple(self._sessions.values()):
            self._expire(session)
        await asyncio.gather(*self._ending)

    def _finish(self, evaluation: Evaluation, session: Session, notes: tuple[str, ...]) -> Evaluation:
        state = evaluation.state
        why = self._explain(f"{state.text}\n{state.tail}", state.exit_status, session.is_read_only)
        return replace(
            evaluation,
            state=replace(state, notes=(*state.notes, *notes, *why)),
            session="" if session.is_ended else session.handle,
            interpreter=session.interpreter,
        )

    def _unsent_handle_notes(self, owner: str) -> tuple[str, ...]:
        """Return a note for each session whose handle `owner` has not received."""
        found = [one for one in self._sessions.values() if one.is_handle_unsent and one.owner == owner]
        for session in found:
            session.is_handle_unsent = False
        return tuple(
            f"session {one.handle} ({one.language}) is from your call that was cancelled: its code was "
            "interrupted, and its variables are still set"
            for one in found
        )

    async def _start(self, folders: Folders, owner: str, language: Language) -> Session:
        self._make_room()
        handle = short_handle("repl_", self._starting.union(self._sessions))
        launch = partial(self._launch, folders, owner, handle, language)
        self._starting.add(handle)
        try:
            try:
                session = await launch()
            except SetupFailed:
                session = await launch()
        finally:
            self._starting.discard(handle)
        self._sessions[handle] = session
        return session

    def _make_room(self) -> None:
        if self._closed:
            raise Unavailable("The server is shutting down and starts no more sessions.")
        # The oldest session whose handle nobody received makes room.
        unsent = [one for one in self._sessions.values() if one.is_handle_unsent]
        if unsent and len(self._sessions) + len(self._starting) >= self._limits.sessions:
            self._expire(unsent[0])
        if len(self._sessions) + len(self._starting) >= self._limits.sessions:
            raise Unavailable(
                f"The limit of {self._limits.sessions} sessions is reached. End an unneeded session with "
                "end_session, or continue in one of them."
            )

    async def _launch(self, folders: Folders, owner: str, handle: str, language: Language) -> Session:
        process = await start_interactive(
            self._broker,
            (sys.executable, "-I", _DRIVER, language),
            cwd=folders.hold_dir(CanonicalPath(".")),
            roots=folders.shown,
            read_only=folders.is_read_only,
            keeps_git=folders.keeps_git,
            owner=owner,
            name=handle,
        )
        session = Session(
            process,
            self._sink,
            self._limits.session,
            handle=handle,
            owner=owner,
            language=language,
            folders=folders,
        )
        try:
            missing = await session.start()
        except BaseException:
            await session.end()
            raise
        if not folders.is_read_only and (unsaid := await self._broker.back_up(owner)):
            process.child.notes += (*unsaid,)
            unsaid.clear()
        if missing:
            await session.end()
            raise Unavailable(
                f"Code in {language} needs {missing}, which is not on the PATH of commands here. Tell the "
                "user, or use another language."
            )
        return session

    def _find(self, snippet: Snippet, owner: str, folders: Folders) -> Session:
        session = self._sessions.get(snippet.session)
        if session is None or session.owner != owner:
            raise self._unknown_handle()
        if session.language != snippet.language:
            raise InvalidInput(
                f"This session runs {session.language}, not {snippet.language}. Start another with session "
                f'"{NEW}".'
            )
        if session.roots != folders.shown:
            raise Conflict(
                "The folders of this client have changed since this session started, or it has entered or "
                f'left a worktree, and the session stays where it is. Start another with session "{NEW}".'
            )
        if (folders.is_read_only, folders.keeps_git) > (session.is_read_only, session.keeps_git):
            raise Denied(
                "This session was started with the right to write, which this call does not have. Start "
                f'another with session "{NEW}".'
            )
        return session

    def _unknown_handle(self) -> NotFound:
        return NotFound(
            "No session has this handle: it is wrong, or the session has ended. Unused sessions end after "
            f'{self._limits.idle_seconds / 60:g} minutes. Start one with session "{NEW}".'
        )

    async def _release(self, session: Session, *, keep: bool) -> tuple[str, ...]:
        """Start the idle timer of a session, or end it and return notes about its end."""
        if keep and session.is_alive and not self._closed:
            loop = asyncio.get_running_loop()
            session.expiry = loop.call_later(self._limits.idle_seconds, self._expire, session)
            return ()
        with anyio.CancelScope(shield=True):
            self._unregister(session)
            await session.end()
        return session.notes

    def _unregister(self, session: Session) -> None:
        session.cancel_expiry()
        session.is_ended = True
        self._sessions.pop(session.handle, None)

    def _expire(self, session: Session) -> None:
        self._unregister(session)
        ending = asyncio.get_running_loop().create_task(session.end())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)


def _is_kept(snippet: Snippet) -> bool:
    """Whether the session of `snippet` continues afterwards."""
    return snippet.session != "" and not snippet.last


@dataclass(frozen=True)
class CallSessions:
    """Interpreter sessions. Processes that a session starts end with it; an idle session ends."""

    interpreters: Interpreters
    folders: Folders
    owner: str

    async def run(self, snippet: Snippet, report: Report) -> Evaluation:
        """Run a snippet. At the timeout it is interrupted, and the session continues if it can.

        Raises:
            NotFound: there is no such session; Unavailable: none can be started; InvalidInput:
                wrong language.
        """
        return await self.interpreters.run_in(self.folders, self.owner, snippet, report)
