"""Manages interpreter sessions by handle.

Each session is a process of `repl/sandboxed/driver.py`, which runs in the command sandbox together with the
code. Only the owner can use a session, by its handle, and one evaluation runs in it at a time.
"""

import asyncio
import os
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
    """Limits for all sessions together."""

    sessions: int = 8
    """Concurrent sessions, including those of single evaluations."""
    idle_seconds: float = 1800.0
    """Unused sessions end after this time."""
    session: SessionLimits = field(default_factory=SessionLimits)


@dataclass(kw_only=True)
class _Entry:
    """A registered session; only its owner may use it, by its handle."""

    handle: str
    owner: str
    language: Language
    session: Session
    roots: tuple[str, ...] | None
    """The roots that the session can access; None for all."""
    is_read_only: bool
    """See `Folders.is_read_only`."""
    expiry: asyncio.TimerHandle | None = None
    is_ended: bool = False
    is_handle_unsent: bool = False
    """Whether the owner has not received the handle, because the first call was cancelled."""

    def cancel_expiry(self) -> None:
        """Stop the idle timer."""
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None


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
        explain: Callable[[str, int | None], tuple[str, ...]] = lambda _, __: (),
    ) -> None:
        self._broker = broker
        self._sink = sink
        self._limits = limits or InterpreterLimits()
        self._explain = explain
        self._entries: dict[str, _Entry] = {}
        self._starting: set[str] = set()
        """The handles of sessions that are starting."""
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    async def run_in(self, folders: Folders, owner: str, snippet: Snippet, report: Report) -> Evaluation:
        """See `CallSessions.run`. A new session survives the cancellation of its first call; the owner's next
        result names its handle."""
        is_new = snippet.session in ("", NEW)
        entry = (
            await self._start(folders, owner, snippet.language)
            if is_new
            else self._find(snippet, owner, folders)
        )
        # Nobody else has the handle of a new session, so its lock is free.
        async with nullcontext() if is_new else entry.session.lock:
            if entry.is_ended:
                raise self._unknown_handle()
            entry.cancel_expiry()
            try:
                evaluation = await entry.session.run(
                    snippet.code, snippet.timeout, report, last=not snippet.session
                )
            except BaseException:
                await self._release(entry, keep=not is_new or _is_kept(snippet))
                entry.is_handle_unsent |= is_new
                raise
            notes = await self._release(entry, keep=_is_kept(snippet) and not evaluation.gone)
            started = (entry.session.note,) if is_new and entry.session.note else ()
            return self._finish(evaluation, entry, (*started, *notes, *self._unsent_handle_notes(owner)))

    def forget(self, owner: str) -> None:
        """End the sessions of an owner who has disconnected; nobody else may use them."""
        for entry in [entry for entry in self._entries.values() if entry.owner == owner]:
            self._expire(entry)

    async def forgotten(self) -> None:
        """Wait until the sessions that `forget` ended are gone."""
        await asyncio.gather(*self._ending)

    async def aclose(self) -> None:
        """End every session, and start no more."""
        self._closed = True
        for entry in tuple(self._entries.values()):
            self._expire(entry)
        await asyncio.gather(*self._ending)

    def _finish(self, evaluation: Evaluation, entry: _Entry, notes: tuple[str, ...]) -> Evaluation:
        state = evaluation.state
        why = self._explain(f"{state.text}\n{state.tail}", state.exit_status)
        return replace(
            evaluation,
            state=replace(state, notes=(*state.notes, *notes, *why)),
            session="" if entry.is_ended else entry.handle,
            interpreter=entry.session.interpreter,
        )

    def _unsent_handle_notes(self, owner: str) -> tuple[str, ...]:
        """Return a note for each session whose handle `owner` has not received."""
        found = [entry for entry in self._entries.values() if entry.is_handle_unsent and entry.owner == owner]
        for entry in found:
            entry.is_handle_unsent = False
        return tuple(
            f"session {entry.handle} ({entry.language}) is from your call that was cancelled: its code was "
            "interrupted, and its variables are still set"
            for entry in found
        )

    def _free_slot(self) -> None:
        """At the limit, end the oldest session whose handle nobody received."""
        unsent = [entry for entry in self._entries.values() if entry.is_handle_unsent]
        if unsent and len(self._entries) + len(self._starting) >= self._limits.sessions:
            self._expire(unsent[0])

    async def _start(self, folders: Folders, owner: str, language: Language) -> _Entry:
        self._free_slot()
        self._check_can_start()
        handle = short_handle("repl_", self._starting.union(self._entries))
        launch = partial(self._launch, folders, owner, handle, language)
        self._starting.add(handle)
        try:
            try:
                session = await launch()
            except SetupFailed:
                session = await launch()
        finally:
            self._starting.discard(handle)
        entry = _Entry(
            handle=handle,
            owner=owner,
            language=language,
            session=session,
            roots=folders.roots,
            is_read_only=folders.is_read_only,
        )
        self._entries[handle] = entry
        return entry

    def _check_can_start(self) -> None:
        """Raises: Unavailable: no session can be started now."""
        if self._closed:
            raise Unavailable("The server is shutting down and starts no more sessions.")
        if len(self._entries) + len(self._starting) >= self._limits.sessions:
            raise Unavailable(
                f"The limit of {self._limits.sessions} sessions is reached. End an unneeded session with "
                "end_session, or continue in one of them."
            )

    async def _launch(self, folders: Folders, owner: str, handle: str, language: Language) -> Session:
        cwd = folders.hold_dir(CanonicalPath("."))
        try:
            driver = (sys.executable, "-I", _DRIVER, language)
            process = await start_interactive(
                self._broker,
                driver,
                cwd=cwd,
                roots=folders.roots,
                read_only=folders.is_read_only,
                owner=owner,
                name=handle,
            )
        finally:
            os.close(cwd)
        session = Session(process, self._sink, self._limits.session, owner=owner)
        try:
            missing = await session.start()
        except BaseException:
            await session.end()
            raise
        if missing:
            await session.end()
            raise Unavailable(
                f"Code in {language} needs {missing}, which is not on the PATH of commands here. Tell the "
                "user, or use another language."
            )
        return session

    def _find(self, snippet: Snippet, owner: str, folders: Folders) -> _Entry:
        entry = self._entries.get(snippet.session)
        if entry is None or entry.owner != owner:
            raise self._unknown_handle()
        if entry.language != snippet.language:
            raise InvalidInput(
                f"This session runs {entry.language}, not {snippet.language}. Start another with session "
                f'"{NEW}".'
            )
        if entry.roots != folders.roots:
            raise Conflict(
                "The folders of this client have changed since this session started, or it has entered or "
                f'left a worktree, and the session stays where it is. Start another with session "{NEW}".'
            )
        if folders.is_read_only and not entry.is_read_only:
            raise Denied(
                "This session was started with the right to write, which this call does not have. Start "
                f'another with session "{NEW}".'
            )
        return entry

    def _unknown_handle(self) -> NotFound:
        return NotFound(
            "No session has this handle: it is wrong, or the session has ended. Unused sessions end after "
            f'{self._limits.idle_seconds / 60:g} minutes. Start one with session "{NEW}".'
        )

    async def _release(self, entry: _Entry, *, keep: bool) -> tuple[str, ...]:
        """Start the idle timer of a session, or end it and return notes about its end."""
        if keep and entry.session.is_alive and not self._closed:
            loop = asyncio.get_running_loop()
            entry.expiry = loop.call_later(self._limits.idle_seconds, self._expire, entry)
            return ()
        with anyio.CancelScope(shield=True):
            await self._end(entry)
        return entry.session.notes

    async def _end(self, entry: _Entry) -> None:
        self._unregister(entry)
        await entry.session.end()

    def _unregister(self, entry: _Entry) -> None:
        entry.cancel_expiry()
        entry.is_ended = True
        self._entries.pop(entry.handle, None)

    def _expire(self, entry: _Entry) -> None:
        self._unregister(entry)
        ending = asyncio.get_running_loop().create_task(self._end(entry))
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
            NotFound: there is no such session (any more).
            InvalidInput: the session speaks another language.
            Unavailable: what it takes is not installed, or too many sessions run already.
        """
        return await self.interpreters.run_in(self.folders, self.owner, snippet, report)
