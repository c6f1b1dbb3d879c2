"""Runs shell commands in the foreground or the background; a slow foreground command moves to the background.

Every command is a job. A foreground call waits for the end of its job. If that takes longer than clients
wait, the job gets a handle and the call returns.
"""

import asyncio
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import anyio

from mcp_toolserver.capabilities.call_scope import LOCAL, Report, Scope, longest_wait
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.processes import QUIET_SECONDS, Command, JobQuery, JobState
from mcp_toolserver.errors import Conflict, NotFound, TimedOut, Unavailable
from mcp_toolserver.runtime.anonymous_file import anonymous_file
from mcp_toolserver.runtime.processes import child
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.output_capture import Capture, CaptureLimits
from mcp_toolserver.runtime.sandbox.broker.messages import Script
from mcp_toolserver.runtime.short_handle import short_handle
from mcp_toolserver.stores.saved_outputs import OutputStore
from mcp_toolserver.text.lines.encoding import decode_page

SEND_SECONDS = 5.0
"""How long a message waits for a command to read it."""

CTRL_D = "\x04"
"""As in a terminal, this message is the end of input."""

END_SECONDS = 8.0
"""How long to wait for a kill, which is longer than the supervisor's own limit."""


class Folders(Protocol):
    """The folders that commands may be started in."""

    @property
    def shown(self) -> tuple[str, ...] | None:
        """The roots, or folders in them, that commands may see, as absolute paths; None for all roots."""
        ...

    @property
    def is_read_only(self) -> bool:
        """Whether commands there run as in read-only mode, although the server's mode allows more."""
        ...

    @property
    def keeps_git(self) -> bool:
        """Whether commands there may not write in repositories, although the server lets commands do so."""
        ...

    def hold_dir(self, path: CanonicalPath) -> int:
        """Open a folder; the caller closes it.

        Raises:
            NotFound, Denied, InvalidInput: the path is no folder, or not one of these.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class CommandLimits:
    """Bounds of all commands together and of one."""

    foreground_seconds: float | None = None
    """A call that takes longer moves to the background; None: what the client waits, or 45 s if unknown."""
    progress_seconds: float = 2.0
    """Time between two progress reports of a call."""
    running: int = 32
    """Commands at once."""
    ended: int = 64
    """Ended background commands whose output can still be read ..."""
    ended_seconds: float = 3600.0
    """... and for how long."""
    capture: CaptureLimits = field(default_factory=CaptureLimits)


class Commands:
    """All commands of the server. See `CallCommands`.

    `explain` returns sentences on what failed in a command, from its output, its exit status and whether it
    was read-only.
    """

    def __init__(
        self,
        broker: Broker,
        folders: Folders,
        sink: OutputStore,
        limits: CommandLimits | None = None,
        *,
        explain: Callable[[str, int | None, bool], tuple[str, ...]] = lambda _, __, ___: (),
    ) -> None:
        self._explain = explain
        self._broker = broker
        self._folders = folders
        self._sink = sink
        self._limits = limits or CommandLimits()
        self._running: set[Job] = set()
        self._handles: dict[str, Job] = {}
        self._closed = False
        self.session_of: Callable[[str], str] = str
        """Names the session of an owner."""
        self._changed: Callable[[str], None] = lambda _: None
        self._removed: Callable[[str], None] = lambda _: None

    def on_change(self, changed: Callable[[str], None], removed: Callable[[str], None]) -> None:
        """Call `changed` with the handle of a background command whenever its state or output changes, and
        `removed` when its output is removed."""
        self._changed, self._removed = changed, removed

    def for_call(self, folders: Folders, scope: Scope, broker: Broker | None = None) -> "CallCommands":
        """Return the commands of one call: they start in `folders` only, by `broker` if given, and of those
        in the background the call sees only its owner's."""
        return CallCommands(
            commands=self,
            folders=folders,
            owner=scope.owner,
            seconds_to_answer=scope.seconds_to_answer,
            broker=broker,
        )

    def for_owner(self, owner: str) -> "CallCommands":
        """Return the background commands of `owner`, for who may wait for their end without a limit."""
        return CallCommands(commands=self, folders=self._folders, owner=owner, seconds_to_answer=math.inf)

    def running_of(self, owner: str) -> dict[str, str]:
        """The scripts of the background commands of `owner` that run, by handle."""
        jobs = self._handles.items()
        return {name: job.script for name, job in jobs if job.owner == owner and job.child.exit is None}

    def longest_wait(self, seconds_to_answer: float | None) -> float:
        return longest_wait(seconds_to_answer, self._limits.foreground_seconds)

    def forget(self, owner: str) -> None:
        """Stop the background commands of `owner`, who will not return; nobody else may use them."""
        for handle in [name for name, job in self._handles.items() if job.owner == owner]:
            job = self._handles.pop(handle)
            if job.child.exit is None:
                job.child.stop()
            else:
                job.capture.close()

    async def forgotten(self, owner: str) -> None:
        """Wait until the commands of `owner` that `forget` stopped are gone."""
        for job in [job for job in self._running if job.owner == owner]:
            await job.child.end(END_SECONDS)

    async def aclose(self) -> None:
        """Kill every command, and start no more."""
        self._closed = True
        running = tuple(self._running)
        for job in running:
            job.child.stop()
        for job in running:
            await job.child.end(END_SECONDS)
        for job in self._handles.values():
            job.capture.close()

    async def run_in(
        self,
        call: "CallCommands",
        command: Command,
        report: Report,
        *,
        ended: Callable[[], None] = lambda: None,
    ) -> JobState:
        """Run a command of `call`; calls `ended` once, when the command is gone, however it ended."""
        hidden_git = tuple(await (call.broker or self._broker).hidden_git())
        unsaid = [] if call.folders.is_read_only else await self._broker.back_up(call.owner)
        job = self._start(call, command, hidden_git, ended)
        try:
            await job.child.started()
            job.child.notes += (*unsaid,)
            unsaid.clear()
            if not command.background:
                await job.watch(
                    report, self.longest_wait(call.seconds_to_answer), every=self._limits.progress_seconds
                )
        except BaseException:
            await job.child.end(END_SECONDS)
            job.capture.close()
            raise
        if command.background or job.child.exit is None:
            state = self._publish(job)
            # Nobody may have seen the answer to a start in the background, as of a task of the board.
            job.read_to = 0 if command.background else state.next_offset
            return state
        state = job.whole()
        job.capture.close()
        if state.reason == "sandbox_failed":
            raise child.sandbox_error(state.exit_status, state.detail)
        _refuse_unverified(state)
        return self.explained(job, state)

    def explained(self, job: "Job", state: JobState) -> JobState:
        """The state with hints on what failed, as far as its text tells."""
        status = state.exit_status if state.reason == "exited" else None
        why = self._explain(f"{state.text}\n{state.tail}", status, job.read_only)
        return replace(state, notes=(*state.notes, *why))

    def _start(
        self,
        call: "CallCommands",
        command: Command,
        hidden_git: tuple[str, ...],
        ended: Callable[[], None],
    ) -> "Job":
        if self._closed:
            raise Unavailable("The server is shutting down; no command is started any more.")
        if len(self._running) >= self._limits.running:
            raise Unavailable(
                f"{self._limits.running} commands run already, and no more may. Stop one with TaskStop, or "
                "wait for one to end."
            )
        cwd, stdin, writer = call.folders.hold_dir(command.cwd), None, None
        try:
            stdin, writer = _standard_input(command)
            request = Script(
                script=command.script,
                timeout=command.timeout,
                roots=call.folders.shown,
                # Only the server's own broker is told when a session ends.
                session="" if call.broker else self.session_of(call.owner),
                read_only=call.folders.is_read_only,
                keeps_git=call.folders.keeps_git,
                hidden_git=hidden_git,
            )
            broker = call.broker or self._broker
            session, known = request.session, broker.connections
            refusals = partial(known.refusals, session, known.watch(session)) if known else tuple
            spawned = child.spawn(broker, request, cwd=cwd, stdin=stdin)
        except BaseException:
            if writer is not None:
                writer.close()
            raise
        finally:
            os.close(cwd)
            if stdin is not None:
                os.close(stdin)

        def conclude(job: Job) -> None:
            self._ended(job)
            ended()

        capture = Capture(self._sink, self._limits.capture, owner=call.owner)
        job = Job(spawned, capture, conclude, self._changed, timeout=command.timeout)
        job.refusals = refusals
        self._running.add(job)
        job.stdin, job.read_only, job.script = writer, request.read_only, command.script
        job.child.can_suspend = not call.is_elsewhere
        if not request.read_only:
            self._broker.writers.add(job.child, call.owner)
        return job

    def _publish(self, job: "Job") -> JobState:
        """Give the job a handle, and the first page of its output with it."""
        job.handle = job.child.name = short_handle("bg_", self._handles)
        job.capture.keep()
        self._handles[job.handle] = job
        state = job.whole()
        self._changed(job.handle)
        if job.child.exit is not None:
            self._ended(job)
        return state

    def _ended(self, job: "Job") -> None:
        self._running.discard(job)
        if job.handle and job.handle not in self._handles:
            # Its owner has left.
            job.capture.close()
        elif job.handle:
            # Jobs that have ended come last in the dict, in the order in which they ended.
            self._handles[job.handle] = self._handles.pop(job.handle)
            job.capture.free_buffers()
            self._changed(job.handle)
            self._forget()

    def _forget(self) -> None:
        """Remove the output of commands that ended long ago."""
        ended = [job for job in self._handles.values() if job.child.exit is not None]
        surplus = len(ended) - self._limits.ended
        for index, job in enumerate(ended):
            if index < surplus or job.idle() > self._limits.ended_seconds:
                del self._handles[job.handle]
                job.capture.close()
                self._removed(job.handle)

    def find(self, handle: str, owner: str) -> "Job":
        """Return a background command of `owner`. Raises: NotFound."""
        self._forget()
        job = self._handles.get(handle)
        if job is None or job.owner != owner:
            raise NotFound(
                "No background command has this id; it was never given, or its output is no longer kept. "
                "Use the id that bash returned."
            )
        return job


def _standard_input(command: Command) -> tuple[int | None, child.PipeWriter | None]:
    """What the command reads, which the caller closes, and what writes to it; None where there is neither."""
    if command.open_stdin:
        return child.input_pipe()
    return anonymous_file("stdin", command.stdin.encode()) if command.stdin else None, None


def _refuse_unverified(state: JobState) -> None:
    """Raises: Unavailable: the server cannot verify what the command did to protected names."""
    if state.reason in child.UNVERIFIED:
        printed = f"\n{state.text}{state.tail}" if state.text else ""
        raise Unavailable(f"The command was killed: {child.NOT_VERIFIED}.{printed}")


@dataclass(frozen=True, kw_only=True)
class CallCommands:
    """The commands of one call, and its background jobs (`JobSource`).

    Nothing a command starts outlives it.
    """

    commands: Commands
    folders: Folders
    owner: str = LOCAL
    """Who may use the handle of a command once it runs in the background. Commands of the same owner share a
    loopback interface, if they are confined and have no other network."""
    seconds_to_answer: float | None = None
    """See `Scope.seconds_to_answer`."""
    is_elsewhere: bool = False
    """Whether a command only starts what then runs outside of its own processes."""
    broker: Broker | None = None
    """What starts a command; None for the server's own broker."""

    async def run(self, command: Command, report: Report) -> JobState:
        """Run to the end, or hand over to the background when it takes too long for a client to wait.

        Raises:
            Unavailable: commands cannot be started here, or too many run already.
        """
        try:
            return await self.commands.run_in(self, command, report)
        except child.SetupFailed:
            return await self.commands.run_in(self, command, report)

    async def output(self, query: JobQuery) -> JobState:
        job = self.commands.find(query.handle, self.owner)
        longest = self.commands.longest_wait(self.seconds_to_answer)
        await job.wait(query, min(query.wait, longest))
        state = job.page(job.start_of(query), query.limit)
        if query.is_read:
            job.read_to = state.next_offset
        _refuse_unverified(state)
        return self.commands.explained(job, state)

    async def send(self, to: str, message: str) -> tuple[str, ...]:
        """See `MessageTarget.send`. Each message is a line; that of Ctrl-D alone closes the input."""
        job = self.commands.find(to, self.owner)
        if job.stdin is None or job.child.exit is not None:
            why = "has ended" if job.child.exit else "has no open input; start it with open_stdin"
            raise Conflict(f"{to} {why}.")
        data = message if message.endswith("\n") else f"{message}\n"
        async with job.turn:
            before = job.stdin.written
            with anyio.move_on_after(SEND_SECONDS) as scope:
                if message == CTRL_D:
                    job.stdin.close()
                else:
                    await job.stdin.write(data.encode())
        if scope.cancelled_caught:
            raise TimedOut(f"{to} does not read: {job.stdin.written - before} bytes were written.")
        return (to,)

    async def stop(self, handle: str) -> JobState:
        job = self.commands.find(handle, self.owner)
        await job.child.end(END_SECONDS)
        state = job.page(job.capture.total, 0)
        _refuse_unverified(state)
        return state


class Job:
    """A command, from its start until its output is removed.

    Calls `ended` once, when the command is gone, and `changed` with its handle whenever it has printed
    something in the background.
    """

    def __init__(
        self,
        spawned: child.Spawned,
        capture: Capture,
        ended: "Callable[[Job], None]",
        changed: Callable[[str], None],
        *,
        timeout: float | None,
    ) -> None:
        self.handle = ""
        """Empty as long as the job is in the foreground."""
        self.script = ""
        self.refusals: Callable[[], tuple[str, ...]] = tuple
        """Says which connections were refused meanwhile."""
        self.capture = capture
        self.owner = capture.owner
        self.timeout = timeout
        self.read_only = False
        """Whether it may not write, although the mode allows it."""
        self.stdin: child.PipeWriter | None = None
        """Its open standard input."""
        self.turn = anyio.Lock()
        """Of who writes to it."""
        self._on_end = ended
        self._changed = changed
        self._began = time.monotonic()
        self._end = 0.0
        self._printed_at = 0.0
        self.read_to = 0
        """Byte of the output where the next read goes on that names none."""
        self._news = asyncio.Event()
        self._drain = child.PipeReader(spawned.output, self._take)
        self.child = child.Child(spawned.control, self._conclude)

    async def watch(self, report: Report, seconds: float, *, every: float) -> None:
        """Report progress each `every` seconds until the command ends or `seconds` are over."""
        with anyio.move_on_after(seconds):
            while self.child.exit is None:
                with anyio.move_on_after(every):
                    await self.child.wait()
                if self.child.exit is None:
                    await report(f"running for {self.seconds():.0f} s, {self.capture.total} bytes of output")

    async def wait(self, query: JobQuery, seconds: float) -> None:
        """Wait for the end of the command or for the output that `query` asks for, at most `seconds`."""
        if not seconds:
            return
        start = self.start_of(query)
        with anyio.move_on_after(seconds):
            while self.child.exit is None and (query.until == "end" or self.capture.total <= start):
                await self._news.wait()
            while query.until == "news" and self.child.exit is None and (left := self._until_quiet()) > 0:
                with anyio.move_on_after(left):
                    await self._news.wait()

    def start_of(self, query: JobQuery) -> int:
        return self.read_to if query.offset is None else query.offset

    def _until_quiet(self) -> float:
        return self._printed_at + QUIET_SECONDS - time.monotonic()

    def seconds(self) -> float:
        """How long it ran, or has run so far."""
        return (time.monotonic() if self.child.exit is None else self._end) - self._began

    def idle(self) -> float:
        """Seconds since it ended."""
        return time.monotonic() - self._end

    def whole(self) -> JobState:
        """Its whole output; of long output the start and the end."""
        return self._state(self.capture.excerpt(last=self.child.exit is not None))

    def page(self, offset: int, limit: int) -> JobState:
        """At most `limit` bytes of its output from `offset` on."""
        start, data = self.capture.read(offset, limit)
        last = self.child.exit is not None and start + len(data) == self.capture.total
        text, used = decode_page(data, last=last)
        return self._state(self.capture.state(text, start, start + used))

    def _state(self, printed: JobState) -> JobState:
        end = self.child.exit
        held = ("it is suspended until plan mode ends",) if end is None and self.child.is_suspended else ()
        return replace(
            printed,
            handle=self.handle,
            running=end is None,
            exit_status=end and end.status,
            reason="running" if end is None else end.reason,
            detail=end.detail if end else "",
            notes=(*self.child.notes, *held, *(end.notes if end else ()), *self.refusals()),
            seconds=self.seconds(),
            timeout=self.timeout,
        )

    def _take(self, data: bytes) -> None:
        self.capture.add(data)
        self._printed_at = time.monotonic()
        self._announce()
        if self.handle:
            self._changed(self.handle)

    def _conclude(self) -> None:
        self._end = time.monotonic()
        # All writers are gone, so what is in the pipe now is the rest.
        self._drain.finish()
        if self.stdin is not None:
            self.stdin.close()
        self._announce()
        self._on_end(self)

    def _announce(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
