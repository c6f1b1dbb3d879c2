"""Runs code in one interpreter session and collects its results.

`repl/sandboxed/driver.py` defines the protocol of a session's driver, whose messages the user's code could
forge. Any violation ends the session, and every message is bounded, so forged messages can claim no more than
the code could have printed.
"""

import asyncio
import base64
import binascii
import contextlib
import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import anyio
import anyio.lowlevel

from mcp_toolserver.capabilities.call_scope import Report
from mcp_toolserver.capabilities.processes import Evaluation, Language
from mcp_toolserver.errors import Unavailable
from mcp_toolserver.runtime.processes.child import LOST, NOT_VERIFIED, UNVERIFIED, Exit, sandbox_error
from mcp_toolserver.runtime.processes.commands import Folders
from mcp_toolserver.runtime.processes.interactive import InteractiveProcess
from mcp_toolserver.runtime.processes.output_capture import Capture, CaptureLimits
from mcp_toolserver.stores.saved_outputs import OutputStore
from mcp_toolserver.text.json_values import is_object

MAX_LINE = 24 << 20
"""Bytes of one line: enough for the largest picture in base64."""

MAX_TEXT = 300
"""Characters kept of a text about the interpreter."""

MAX_STARTUP_OUTPUT = 500
"""Bytes of output shown for an interpreter that did not start."""


# --- the messages of the driver --------------------------------------------------------------------------


class DriverProtocolError(Exception):
    """The data does not follow the driver protocol."""


class Decoder:
    """Decodes a byte stream into lines of JSON objects."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[dict[str, object]]:
        """Return the messages that `data` completes. Raises: DriverProtocolError."""
        first, *others = data.split(b"\n")
        # Appending keeps small chunks cheap.
        self._rest += first
        if len(self._rest) > MAX_LINE:
            raise DriverProtocolError
        for rest in others:
            line, self._rest = bytes(self._rest), bytearray(rest)
            try:
                word: object = json.loads(line)
            except (ValueError, RecursionError):
                raise DriverProtocolError from None
            if not is_object(word):
                raise DriverProtocolError
            yield word


@dataclass(kw_only=True)
class OngoingEvaluation:
    """The state of one evaluation, updated by the driver's messages."""

    tag: str
    """Marks the messages of this evaluation."""
    on_output: Callable[[bytes], None]
    max_pictures: int
    max_picture_bytes: int
    """Largest size of one picture."""
    pictures: list[bytes] = field(default_factory=list[bytes])
    dropped: int = 0
    status: int | None = None
    """Exit status of the code once it has finished; 0 means no error."""
    ended: int | None = None
    """Exit status of the interpreter once it has ended."""
    ready: bool = False
    interpreter: str = ""
    """Path of the interpreter."""
    version: str = ""
    """What the interpreter calls itself."""
    note: str = ""
    """Why the interpreter is not the expected one."""
    missing: str = ""
    """A required program that is not installed."""

    @property
    def is_finished(self) -> bool:
        """Whether no more messages will come."""
        return self.status is not None or self.ended is not None or bool(self.missing)

    def apply(self, word: dict[str, object]) -> None:
        """Apply one message. Raises: DriverProtocolError."""
        match word:
            case {"output": str() as data}:
                self.on_output(_bytes(data))
            case {"picture": str() as data, "tag": tag}:
                self._add_picture(_bytes(data), tag)
            case {"done": int() as status, "tag": tag}:
                status = _status(status)
                self.status = status if tag == self.tag else self.status
            case {"ended": int() as status}:
                self.ended = _status(status)
            case {"interpreter": str() as path, "note": str() as note}:
                self.interpreter, self.note = _line(path), _line(note)
            case {"ready": str() as version}:
                self.ready, self.version = True, _line(version)
            case {"missing": str() as program}:
                self.missing = _line(program)
            case _:
                raise DriverProtocolError

    def _add_picture(self, picture: bytes, tag: object) -> None:
        if tag != self.tag:
            return
        if len(self.pictures) < self.max_pictures and len(picture) <= self.max_picture_bytes:
            self.pictures.append(picture)
        else:
            self.dropped += 1


def _bytes(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise DriverProtocolError from None


def _line(text: str) -> str:
    """`text` as one line of bounded length, for messages."""
    return "".join(filter(str.isprintable, text[:MAX_TEXT]))


def _status(status: int) -> int:
    if not 0 <= status <= 255:
        raise DriverProtocolError
    return status


# --- the session -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class SessionLimits:
    start_seconds: float = 30.0
    exit_seconds: float = 5.0
    """How long an interpreter that closed its output before it was ready may take to exit."""
    interrupt_seconds: float = 5.0
    """How long code may continue after the first interrupt before the session is killed."""
    progress_seconds: float = 2.0
    """Seconds between progress reports."""
    pictures: int = 10
    picture_bytes: int = 5 << 20
    capture: CaptureLimits = field(default_factory=CaptureLimits)


class Session:
    """An interpreter process and its protocol state; only its owner may use it, by its handle."""

    def __init__(  # noqa: PLR0913  # who may use it and what it may access are not used together elsewhere
        self,
        process: InteractiveProcess,
        sink: OutputStore,
        limits: SessionLimits,
        *,
        handle: str,
        owner: str,
        language: Language,
        folders: Folders,
    ) -> None:
        self.handle = handle
        self.owner = owner
        self.language = language
        self.roots = folders.shown
        """The roots that the session can access; None for all."""
        self.is_read_only = folders.is_read_only
        """See `Folders.is_read_only`."""
        self.keeps_git = folders.keeps_git
        self.expiry: asyncio.TimerHandle | None = None
        self.is_ended = False
        self.is_handle_unsent = False
        """Whether the owner has not received the handle, because the first call was cancelled."""
        self._process = process
        self._sink = sink
        self._limits = limits
        self._decoder = Decoder()
        self._distrusted = False
        self._is_closed = False
        """The process closed its output or was given up."""
        self.interpreter = ""
        """Version and path of the interpreter, as far as it states its version."""
        self.note = ""
        """Why the interpreter is not the expected one."""
        self.lock = anyio.Lock()
        """Held while code runs."""

    @property
    def is_alive(self) -> bool:
        """Whether the session can run more code, as far as is known."""
        return not (self._is_closed or self._distrusted) and self._process.exit is None

    async def start(self) -> str:
        """Wait until the session is ready; return the missing program, or an empty string.

        Raises:
            Unavailable: the interpreter did not start.
        """
        output = bytearray()
        evaluation = self._new_evaluation("", output.extend)
        with anyio.move_on_after(self._limits.start_seconds):
            while not (evaluation.ready or self._is_finished(evaluation)):
                await self._receive(evaluation)
        if evaluation.version:
            self.interpreter = f"{evaluation.version}, {evaluation.interpreter}"
        self.note = evaluation.note
        if evaluation.ready or evaluation.missing:
            return evaluation.missing
        if self._is_closed:
            # Killed before it exits, it could not say why: its sandbox may have failed.
            with anyio.move_on_after(self._limits.exit_seconds):
                await self._process.wait()
        await self.end()
        raise _start_failure(
            self._exit,
            evaluation.interpreter,
            bytes(output[-MAX_STARTUP_OUTPUT:] or self._process.stderr()[-MAX_STARTUP_OUTPUT:]),
        )

    async def run(self, code: str, timeout: float, report: Report, *, last: bool = False) -> Evaluation:
        """Run code until it finishes, or interrupt it at the timeout.

        The interpreter ends after the `last` code, when its threads and timers are done.
        """
        began = time.monotonic()
        capture = Capture(self._sink, self._limits.capture, owner=self.owner)
        evaluation = self._new_evaluation(secrets.token_hex(8), capture.add)
        try:
            # Record changes the user made in the meantime, so that they are not attributed to this code.
            notes = await self._process.check()
            with anyio.move_on_after(timeout):
                await self._send({"run": code, "tag": evaluation.tag, "last": last})
                await self._wait(evaluation, report)
            timed_out = not self._is_finished(evaluation)
            await self._interrupt(evaluation)
            notes += await self._process.check()
            has_status = evaluation.status is not None and not self._distrusted
            well = has_status and self._process.exit is None
            gone = "" if well else await self._exit_reason(evaluation, timed_out=timed_out, last=last)
            status = evaluation.ended if evaluation.status is None else evaluation.status
            seconds = time.monotonic() - began
            state = replace(capture.excerpt(last=True), exit_status=status, seconds=seconds, notes=notes)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._interrupt(evaluation)
            raise
        finally:
            capture.close()
        return Evaluation(
            state=state,
            pictures=tuple(evaluation.pictures),
            dropped=evaluation.dropped,
            timed_out=timed_out,
            gone=gone,
        )

    def cancel_expiry(self) -> None:
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None

    async def end(self) -> None:
        """Kill the interpreter and everything it started."""
        await self._process.end()

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the user about the end of the session."""
        return self._exit.notes

    @property
    def _exit(self) -> Exit:
        return self._process.exit or LOST

    def _new_evaluation(self, tag: str, on_output: Callable[[bytes], None]) -> OngoingEvaluation:
        limits = self._limits
        return OngoingEvaluation(
            tag=tag, on_output=on_output, max_pictures=limits.pictures, max_picture_bytes=limits.picture_bytes
        )

    def _is_finished(self, evaluation: OngoingEvaluation) -> bool:
        return evaluation.is_finished or self._distrusted or self._is_closed

    async def _wait(self, evaluation: OngoingEvaluation, report: Report) -> None:
        """Process messages until the evaluation finishes, and report progress."""
        began = time.monotonic()
        while not self._is_finished(evaluation):
            with anyio.move_on_after(self._limits.progress_seconds):
                while not self._is_finished(evaluation):
                    await self._receive(evaluation)
            if not self._is_finished(evaluation):
                await report(f"running for {time.monotonic() - began:.0f} s")

    async def _interrupt(self, evaluation: OngoingEvaluation) -> None:
        """Interrupt running code and wait briefly for it to stop.

        The interrupt is sent twice, because a program that bash has forked and not yet executed loses it.
        """
        for _ in range(2):
            if self._is_finished(evaluation):
                return
            with anyio.move_on_after(self._limits.interrupt_seconds / 2):
                await self._send({"interrupt": True})
                while not self._is_finished(evaluation):
                    await self._receive(evaluation)
        # Code that continues would print into the next evaluation.
        self._is_closed |= not self._is_finished(evaluation)

    async def _send(self, message: Mapping[str, object]) -> None:
        # The next read reports that the process ended.
        with contextlib.suppress(Unavailable):
            await self._process.stdin.write(json.dumps(message).encode() + b"\n")

    async def _receive(self, evaluation: OngoingEvaluation) -> None:
        data = await self._process.read()
        self._is_closed = not data
        try:
            for message in self._decoder.feed(data):
                evaluation.apply(message)
        except DriverProtocolError:
            self._distrusted = True
        # Yield, so that heavy output blocks neither other tasks nor the timeout.
        await anyio.lowlevel.checkpoint()

    async def _exit_reason(self, evaluation: OngoingEvaluation, *, timed_out: bool, last: bool) -> str:
        """Return why the session ended, as a phrase that follows "the session"; empty if it had to."""
        await self.end()
        if self._exit.reason == "over a limit":
            return (
                f"was killed: it used {self._exit.detail}, which only the operator of this server can allow"
            )
        if self._exit.reason == "uncovered":
            return f"was stopped: {self._exit.detail}"
        if self._exit.reason in UNVERIFIED:
            return f"was killed: {NOT_VERIFIED}"
        if evaluation.ended is not None:
            return "" if last else f"ended with exit status {evaluation.ended}"
        if self._distrusted:
            return "was killed: its code wrote to the driver's channel"
        return "was killed: its code did not stop when interrupted" if timed_out else "was killed"


def _start_failure(end: Exit, interpreter: str, output: bytes) -> Unavailable:
    if end.reason == "sandbox_failed":
        return sandbox_error(end.status, end.detail)
    text = output.decode(errors="replace").strip()
    name = interpreter or "the interpreter"
    return Unavailable(
        f"No session could be started: {name} did not become ready. Its output: {text or 'none'}\n"
        f"Run the code with bash, or tell the user that {name} has to be repaired."
    )
