"""One session of an interpreter: code goes in, what came of it comes out."""

import contextlib
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel

from mcp_toolserver.capabilities.calls import Report
from mcp_toolserver.capabilities.processes import JobState
from mcp_toolserver.capabilities.sessions import Evaluation
from mcp_toolserver.errors import SandboxUnavailable, Unavailable
from mcp_toolserver.runtime.capture import Capture, CaptureLimits, Sink
from mcp_toolserver.runtime.child import LOST
from mcp_toolserver.runtime.dialogue import Dialogue
from mcp_toolserver.runtime.launch import Exit
from mcp_toolserver.runtime.session_words import Hearing, Nonsense, Words

SAID = 500
"""Bytes shown of what an interpreter said that did not get ready."""


@dataclass(frozen=True, kw_only=True)
class SessionLimits:
    """Bounds of one session."""

    start_seconds: float = 30.0
    interrupt_seconds: float = 5.0
    """How long code may go on after an interrupt until its session is killed."""
    progress_seconds: float = 2.0
    """Time between two words on how a call is going."""
    pictures: int = 10
    picture_bytes: int = 5 << 20
    capture: CaptureLimits = field(default_factory=CaptureLimits)


class Session:
    """An interpreter and the one way to it."""

    def __init__(self, dialogue: Dialogue, sink: Sink, limits: SessionLimits) -> None:
        self._dialogue = dialogue
        self._sink = sink
        self._limits = limits
        self._words = Words()
        self._distrusted = False
        self._silent = False
        """Nothing more comes from it."""
        self.turn = anyio.Lock()
        """To be held while code runs."""

    @property
    def lives(self) -> bool:
        """Whether it can run more code, as far as is known."""
        return not (self._silent or self._distrusted) and self._dialogue.exit is None

    async def start(self) -> str:
        """Returns when it can run code: empty, or the program that is missing.

        Raises:
            Unavailable: it does not start.
        """
        said = bytearray()
        heard = self._hearing("", said.extend)
        with anyio.move_on_after(self._limits.start_seconds):
            while not (heard.ready or self._settled(heard)):
                await self._hear(heard)
        if heard.ready or heard.missing:
            return heard.missing
        await self.end()
        raise _unstarted(self._exit, bytes(said[-SAID:] or self._dialogue.complaints()[-SAID:]))

    async def run(self, code: str, timeout: float, report: Report) -> Evaluation:
        """Run code to its end, or until its time is up and it is interrupted."""
        began = time.monotonic()
        capture = Capture(self._sink, self._limits.capture)
        heard = self._hearing(secrets.token_hex(8), capture.add)
        try:
            with anyio.move_on_after(timeout):
                await self._say({"run": code, "tag": heard.tag})
                await self._attend(heard, report)
            timed_out = not self._settled(heard)
            await self._calm(heard)
            gone = "" if self._is_well(heard) else await self._obituary(heard, timed_out=timed_out)
            state = _state(capture, heard, time.monotonic() - began)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._calm(heard)
            raise
        finally:
            capture.close()
        return Evaluation(
            state=state,
            pictures=tuple(heard.pictures),
            dropped=heard.dropped,
            timed_out=timed_out,
            gone=gone,
        )

    async def end(self) -> None:
        """Kill it with all it started."""
        await self._dialogue.end()

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be told of its end: sentences."""
        return self._exit.notes

    @property
    def _exit(self) -> Exit:
        return self._dialogue.exit or LOST

    def _hearing(self, tag: str, printed: Callable[[bytes], None]) -> Hearing:
        limits = self._limits
        return Hearing(
            tag=tag, printed=printed, most_pictures=limits.pictures, most_bytes=limits.picture_bytes
        )

    def _settled(self, heard: Hearing) -> bool:
        return heard.over or self._distrusted or self._silent

    def _is_well(self, heard: Hearing) -> bool:
        return heard.status is not None and not self._distrusted

    async def _attend(self, heard: Hearing, report: Report) -> None:
        """Hear until it is over, and tell how long that takes."""
        began = time.monotonic()
        while not self._settled(heard):
            with anyio.move_on_after(self._limits.progress_seconds):
                while not self._settled(heard):
                    await self._hear(heard)
            if not self._settled(heard):
                await report(f"running for {time.monotonic() - began:.0f} s")

    async def _calm(self, heard: Hearing) -> None:
        """Interrupt code that still runs, and wait a little for it to stop."""
        if self._settled(heard):
            return
        with anyio.move_on_after(self._limits.interrupt_seconds):
            await self._say({"interrupt": True})
            while not self._settled(heard):
                await self._hear(heard)
        # Code that goes on would print into the answer to the next.
        self._silent |= not self._settled(heard)

    async def _say(self, word: Mapping[str, object]) -> None:
        # One that has ended is heard to have.
        with contextlib.suppress(Unavailable):
            await self._dialogue.say(json.dumps(word).encode() + b"\n")

    async def _hear(self, heard: Hearing) -> None:
        data = await self._dialogue.hear()
        self._silent = not data
        try:
            for word in self._words.taken(data):
                heard.take(word)
        except Nonsense:
            self._distrusted = True
        # A flood must not keep others waiting, nor time from running out.
        await anyio.lowlevel.checkpoint()

    async def _obituary(self, heard: Hearing, *, timed_out: bool) -> str:
        """Why there is no session any more, in words that go on from "the session"."""
        await self.end()
        if self._exit.reason == "over a limit":
            return (
                f"was killed: it used {self._exit.detail}, which only the operator of this server can allow"
            )
        if heard.ended is not None:
            return f"ended with exit status {heard.ended}"
        if self._distrusted:
            return "was killed: its code spoke in the place of its driver"
        return "was killed: its code did not stop when interrupted" if timed_out else "was killed"


def _state(capture: Capture, heard: Hearing, seconds: float) -> JobState:
    excerpt = capture.excerpt(last=True)
    return JobState(
        handle="",
        text=excerpt.text,
        start=0,
        next_offset=excerpt.end,
        omitted=excerpt.omitted,
        tail=excerpt.tail,
        total=capture.total,
        running=False,
        exit_status=heard.status,
        reason="exited",
        seconds=seconds,
        spill=capture.spill,
    )


def _unstarted(end: Exit, said: bytes) -> Unavailable:
    if end.reason == "unwalled":
        return SandboxUnavailable(end.detail)
    words = said.decode(errors="replace").strip()
    return Unavailable(
        "No session could be started: its interpreter did not get ready"
        f"{f', and said: {words}' if words else '. Try again later'}"
    )
