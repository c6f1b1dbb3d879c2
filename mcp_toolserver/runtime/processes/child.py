"""A program under its supervisor, as the event loop sees it: asking the broker for it with the pipes that
lead to it, what it prints, and how it ends."""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeGuard, get_args

import anyio

from mcp_toolserver.capabilities.processes import EndReason
from mcp_toolserver.errors import SandboxUnavailable, Unavailable
from mcp_toolserver.runtime.processes.broker_client import Broker, unstartable
from mcp_toolserver.runtime.sandbox.broker.messages import CHECK, RESUME, SUSPEND, Request, session_of
from mcp_toolserver.text.json_values import is_list, is_object

CHUNK = 1 << 20
"""Bytes asked of a pipe at once, and its size where the kernel grants it."""

LONGEST_REPORT = 1 << 18
"""Bytes; the kernel takes no longer packet from a supervisor by default."""

UNVERIFIED: tuple[EndReason, ...] = ("unverified", "lost")
"""Nobody could tell what became of protected names."""

NOT_VERIFIED = (
    "its supervisor could not report, so protected names (.git, .vscode, .envrc and the like) could not be "
    "verified; the user should look at them before using the folder"
)


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How a program ended."""

    status: int | None
    """0-255, or 128 + signal; None when the broker was lost."""
    reason: EndReason
    detail: str = ""
    """The limit that ended it, in words that go on from "it used"; or why its sandbox could not be set up; or
    what they did not protect any more."""
    notes: tuple[str, ...] = ()
    """What its reader should know as well: sentences."""


_GAVE_UP = 1
"""Exit status of a bubblewrap that could not set up the sandbox. One that was killed has another, and its
command may have run."""


class SetupFailed(SandboxUnavailable):
    """The sandbox could not be set up, and nothing was run in it. A second attempt may succeed: a socket that
    was to be masked may have gone meanwhile."""


def sandbox_error(exit_status: int | None, detail: str) -> SandboxUnavailable:
    """The error for a program whose sandbox failed; `SetupFailed` if it certainly has not run."""
    return (SetupFailed if exit_status == _GAVE_UP else SandboxUnavailable)(detail)


LOST = Exit(status=None, reason="lost")


# --- the start -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Spawned:
    """Our ends of what leads to a program."""

    control: socket.socket
    output: int
    errors: int | None
    """None when standard error goes the way of standard output, which keeps the order of the two."""


def spawn(
    broker: Broker, request: Request, *, cwd: int, stdin: int | None = None, separate_stderr: bool = False
) -> Spawned:
    """Ask for a program in the folder `cwd`; `separate_stderr` gives standard error a pipe of its own.

    Raises:
        Unavailable: no program can be started.
    """
    if broker.connections is not None:
        broker.connections.watch(session_of(request))
    with ExitStack() as ours, ExitStack() as theirs:
        try:
            if stdin is None:
                stdin = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
                theirs.callback(os.close, stdin)
            output, stdout = _pipe(ours, theirs)
            errors, stderr = _pipe(ours, theirs) if separate_stderr else (None, stdout)
        except OSError as error:
            raise unstartable(error) from None
        control = broker.spawn(request, (cwd, stdin, stdout, stderr))
        ours.pop_all()
        return Spawned(control=control, output=output, errors=errors)


def _pipe(ours: ExitStack, theirs: ExitStack) -> tuple[int, int]:
    """A pipe from a program to us: the end to read, which does not block, and the end it writes to."""
    reading, writing = os.pipe()
    ours.callback(os.close, reading)
    theirs.callback(os.close, writing)
    os.set_blocking(reading, False)
    # Not everywhere where this module is imported, but wherever there is a broker.
    import fcntl

    # An unprivileged user may have only so many large pipes; a small one works as well.
    with contextlib.suppress(OSError, AttributeError):
        # Only Linux has it.
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, CHUNK)
    return reading, writing


class PipeWriter:
    """Writes to a program through a pipe; at most one task may write at a time."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self.written = 0
        """Bytes so far."""

    def try_write(self, data: bytes) -> int:
        """Write what fits without blocking; returns the number of bytes.

        Must not be called while a task is in `write`.
        """
        try:
            return os.write(self._pipe, data)
        except OSError:
            return 0

    async def write(self, data: bytes) -> None:
        """Write all of `data`. Raises: Unavailable: the program no longer reads."""
        rest = memoryview(data)
        while rest:
            try:
                count = os.write(self._pipe, rest)
            except BlockingIOError:
                # After `close`, the next attempt to write says that nobody reads.
                with contextlib.suppress(anyio.ClosedResourceError):
                    await anyio.wait_writable(self._pipe)
            except OSError:
                raise Unavailable("The program that was talked to has ended.") from None
            else:
                self.written, rest = self.written + count, rest[count:]

    def close(self) -> None:
        """Let the program read the end of its input."""
        if self._pipe >= 0:
            anyio.notify_closing(self._pipe)
            os.close(self._pipe)
            self._pipe = -1


def input_pipe() -> tuple[int, PipeWriter]:
    """A standard input for `spawn`, which the caller closes, and its writer. Raises: Unavailable."""
    try:
        reading, writing = os.pipe()
    except OSError as error:
        raise unstartable(error) from None
    os.set_blocking(writing, False)
    return reading, PipeWriter(writing)


# --- what it prints and how it ends ------------------------------------------------------------------------


class PipeReader:
    """Reads a pipe whenever something is in it, hands that to `take`, and so never keeps its writer long."""

    def __init__(self, pipe: int, take: Callable[[bytes], None]) -> None:
        self._pipe = pipe
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._open = True
        self._loop.add_reader(pipe, self._read)

    def finish(self) -> None:
        """Take what is still in the pipe, and close it. For when nobody writes any more."""
        while self._open and self._read():
            pass
        self.close()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._pipe)
            os.close(self._pipe)

    def _read(self) -> bool:
        """Take one piece; false when there is none."""
        try:
            data = os.read(self._pipe, CHUNK)
        except BlockingIOError:
            return False
        if data:
            self._take(data)
        else:
            self.close()
        return bool(data)


class Child:
    """What the supervisor tells of its program. `ended` is called once, when all of it is gone."""

    def __init__(self, control: socket.socket, ended: Callable[[], None]) -> None:
        self._control = control
        self._tell = ended
        self._loop = asyncio.get_running_loop()
        self._started = asyncio.Event()
        self._ended = asyncio.Event()
        self._trouble: Unavailable | None = None
        self.exit: Exit | None = None
        """How it ended; None until then."""
        self.notes: tuple[str, ...] = ()
        """What its reader should know so far, in sentences; what is in `exit` comes on top."""
        self.name = "a command in the foreground"
        """How answers call it."""
        self.can_suspend = True
        """Whether all that it does is done by its own processes."""
        self.is_suspended = False
        self._checked, self._paused = asyncio.Event(), asyncio.Event()
        self._unread = b""
        """The start of a line."""
        self._loop.add_reader(control, self._receive)

    async def started(self) -> None:
        """Returns when the program runs or has ended. Raises: Unavailable: it cannot be started."""
        await self._started.wait()
        if self._trouble is not None:
            raise self._trouble

    async def wait(self) -> Exit:
        """Returns when it, and all it started, is gone."""
        await self._ended.wait()
        return self.exit or LOST

    async def check(self) -> None:
        """Have protected names verified now; `notes` has what there is to report of it.

        Returns as well when it has ended meanwhile.
        """
        self._checked.clear()
        with contextlib.suppress(OSError):
            self._control.send(CHECK)
            await self._checked.wait()

    def take_notes(self) -> tuple[str, ...]:
        """Those that were not taken before."""
        notes, self.notes = self.notes, ()
        return notes

    def stop(self) -> None:
        """Have the supervisor kill it; `wait` tells when that is done."""
        if self.exit is None:
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_WR)

    def suspend(self, suspended: bool) -> None:
        """Have the supervisor stop all its processes, or let them go on; what cannot be stopped is killed."""
        self._paused.clear()
        if self.can_suspend:
            self.is_suspended = suspended
            with contextlib.suppress(OSError):
                self._control.send(SUSPEND if suspended else RESUME)
        else:
            self.stop()

    async def paused(self, seconds: float) -> bool:
        """Wait until it is suspended, or kill it after `seconds`; returns whether it is still there."""
        with anyio.move_on_after(seconds):
            await self._paused.wait()
        if not self._paused.is_set():
            await self.end(seconds)
        return self.exit is None

    async def end(self, seconds: float) -> None:
        """Kill it and wait until it is gone, at most for `seconds`, even when the caller is cancelled."""
        self.stop()
        with anyio.move_on_after(seconds, shield=True):
            await self._ended.wait()

    def _receive(self) -> None:
        try:
            data = _received(self._control)
        except BlockingIOError:
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._take(_message(line))
            if self.exit is not None:
                return
        if not data:
            # The supervisor ended without a report.
            self._conclude({})

    def _take(self, message: dict[str, object]) -> None:
        if "started" in message:
            self._started.set()
        elif "noticed" in message:
            self.notes = (*self.notes, *_texts(message["noticed"]))
        elif "checked" in message:
            self._checked.set()
        elif "suspended" in message:
            self._paused.set()
        else:
            self._conclude(message)

    def _conclude(self, message: dict[str, object]) -> None:
        self._loop.remove_reader(self._control)
        self._control.close()
        self.exit = _exit(message)
        # On POSIX, its time can be over before it runs: then there is a report, as of one that ran.
        if self.exit.reason == "lost" and not self._started.is_set():
            self._trouble = _trouble(message)
        try:
            self._tell()
        finally:
            self._started.set()
            self._checked.set()
            self._paused.set()
            self._ended.set()


def _received(control: socket.socket) -> bytes:
    """What comes next: a packet on Linux, else a piece of a stream; empty at the end.

    Raises:
        BlockingIOError: there is nothing yet.
    """
    for _ in range(2):
        try:
            return control.recv(LONGEST_REPORT)
        except BlockingIOError:
            raise
        except ConnectionResetError:
            # The supervisor ended before it read our last word. What it reported comes after this.
            continue
        except OSError:
            break
    return b""


def _message(line: bytes) -> dict[str, object]:
    """What a line says; nothing when it cannot be read."""
    try:
        message: object = json.loads(line)
    except ValueError:
        return {}
    return message if is_object(message) else {}


def _trouble(message: dict[str, object]) -> Unavailable:
    match message:
        case {"refused": str() as why}:
            return Unavailable(f"The process broker refuses: {why}.")
        case {"failed": str() as why}:
            return Unavailable(f"The program cannot be started: {why}.")
        case {"sandbox_failed": str() as why}:
            return SandboxUnavailable(why)
        case _:
            return Unavailable("The program cannot be started: its watcher ended. Try again later.")


def _exit(message: dict[str, object]) -> Exit:
    match message.get("status"), message.get("reason"):
        case (int() | None) as status, reason if _is_reason(reason):
            detail, notes = message.get("detail"), message.get("notes")
            return Exit(
                status=status,
                reason=reason,
                detail="; ".join(_texts(detail)) if detail else "",
                notes=tuple(_texts(notes)) if notes else (),
            )
        case _:
            return LOST


def _texts(value: object) -> list[str]:
    found = value if is_list(value) else [value]
    return [text for text in found if isinstance(text, str)]


def _is_reason(value: object) -> TypeGuard[EndReason]:
    return value in get_args(EndReason)
