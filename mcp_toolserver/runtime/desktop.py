"""The desktop, reached by helper programs that run as any command does.

A command and all it started end together. So what has to stay, such as a program that was opened or the
holder of a copied text, is kept as a command that goes on until the server ends.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import anyio

from mcp_toolserver.capabilities import CanonicalPath, Capability, Desktop
from mcp_toolserver.errors import NotFound, RegistrationError, TimedOut, Unavailable
from mcp_toolserver.runtime.broker import Broker
from mcp_toolserver.runtime.desktop_programs import DesktopPrograms
from mcp_toolserver.runtime.dialogue import Dialogue, converse
from mcp_toolserver.runtime.fs import Workspace
from mcp_toolserver.text import desktop as argv

SECONDS = 30.0
SPEECH_SECONDS = 150.0
MOST_OPEN = 32
MAX_PICTURE = 5 << 20
"""Bytes."""

_OPEN_SCRIPT = '"$@" >&2 || exit; echo opened; exec sleep 2147483647'
_POLL_SECONDS = 0.05


class HelperPrograms:
    """What there is, and what was started and stays."""

    def __init__(self, broker: Broker, found: DesktopPrograms, *, seconds: float = SECONDS) -> None:
        self._broker = broker
        self._found = found
        self._seconds = seconds
        self._opened: list[Dialogue] = []
        self._holder: Dialogue | None = None

    def within(self, workspace: Workspace, needs: frozenset[Capability]) -> Desktop:
        """What a call with `needs` may do."""
        return _Within(self, workspace, needs)

    def program(self, need: Capability) -> str:
        """The helper for it."""
        return self._found.programs[need]

    async def output(
        self, words: Sequence[str], *, most: int = 1 << 16, seconds: float | None = None
    ) -> tuple[bytes, bool]:
        """What a helper prints up to its end, at most `most` bytes; and whether that is all.

        Raises:
            Unavailable: it fails.
        """
        running, printed = await self._start(words), bytearray()
        with anyio.move_on_after(self._seconds if seconds is None else seconds):
            try:
                while (data := await running.hear()) and len(printed) <= most:
                    printed += data
                if len(printed) > most:
                    return bytes(printed[:most]), False
                if (await running.wait()).status != 0:
                    raise _failed(words)
                return bytes(printed), True
            finally:
                await running.end()
        raise TimedOut(f"{argv.name(words[0])} took too long. Ask the user whether their desktop is there.")

    async def stay(self, words: Sequence[str]) -> None:
        """Have a helper start something that stays. Raises: Unavailable: it fails, or too much has stayed."""
        self._opened = [each for each in self._opened if each.exit is None]
        if len(self._opened) >= MOST_OPEN:
            raise Unavailable(f"{MOST_OPEN} things were opened and stay open; ask the user to open this one.")
        running = await self._start(("/bin/sh", "-c", _OPEN_SCRIPT, "sh", *words))
        heard = b""
        try:
            with anyio.move_on_after(self._seconds):
                heard = await running.hear()
                if not heard:
                    raise _failed(words)
        except BaseException:
            await running.end()
            raise
        # One that is still at it, such as a browser in the foreground, has opened what it was given.
        self._opened.append(running)

    async def hold(self, copying: Sequence[str], text: str) -> Dialogue:
        """Have a helper hold `text`; the caller ends it, or has it kept."""
        running = await self._start(copying)
        try:
            await running.say(text.encode())
            running.finish()
        except BaseException:
            await running.end()
            raise
        return running

    async def keep(self, holder: Dialogue) -> None:
        """Let `holder` go on, and end the one before, which has nothing to hold any more."""
        before, self._holder = self._holder, holder
        if before is not None:
            await before.end()

    async def aclose(self) -> None:
        """End all that stayed."""
        for running in (*self._opened, *((self._holder,) if self._holder else ())):
            await running.end()

    async def _start(self, words: Sequence[str]) -> Dialogue:
        session = (f"{name}={value}" for name, value in self._found.session)
        folder = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return await converse(self._broker, ("/usr/bin/env", *session, *words), cwd=folder)
        finally:
            os.close(folder)


def _failed(words: Sequence[str]) -> Unavailable:
    return Unavailable(f"{argv.name(words[0])} failed. Ask the user whether their desktop is there.")


@dataclass(frozen=True)
class _Within:
    """Implements `capabilities.Desktop`."""

    helpers: HelperPrograms
    workspace: Workspace
    needs: frozenset[Capability]

    async def open(self, target: str) -> None:
        await self.helpers.stay(argv.opening(self._program(Capability.DESKTOP_OPEN), target))

    async def open_path(self, path: CanonicalPath) -> None:
        if self.workspace.kind(path) == "missing":
            raise NotFound(f"'{path}' does not exist.")
        await self.open(self.workspace.spellings(path)[-1])

    async def notify(self, title: str, message: str) -> None:
        await self.helpers.output(argv.notice(self._program(Capability.DESKTOP_NOTIFY), title, message))

    async def say(self, text: str, voice: str) -> None:
        words = argv.speech(self._program(Capability.DESKTOP_SAY), text, voice)
        await self.helpers.output(words, seconds=SPEECH_SECONDS)

    async def copied(self, most: int) -> tuple[str, bool]:
        words = argv.pasting(self._program(Capability.CLIPBOARD_READ))
        try:
            found, whole = await self.helpers.output(words, most=most)
        except Unavailable:
            raise NotFound("There is no text on the clipboard, or it cannot be reached.") from None
        return found.decode("utf-8", "replace" if whole else "ignore"), whole

    async def copy(self, text: str) -> None:
        program = self._program(Capability.CLIPBOARD_WRITE)
        running = await self.helpers.hold(argv.copying(program), text)
        try:
            taken = await self._taken(running, argv.pasting(argv.reader(program)), text)
        except BaseException:
            await running.end()
            raise
        if not taken:
            await running.end()
            raise _failed((program,))
        await self.helpers.keep(running)

    async def _taken(self, running: Dialogue, back: Sequence[str], text: str) -> bool:
        with anyio.move_on_after(SECONDS):
            while running.exit is None or running.exit.status == 0:
                if await self._holds(back, text):
                    return True
                await anyio.sleep(_POLL_SECONDS)
        return False

    async def _holds(self, back: Sequence[str], text: str) -> bool:
        """Whether the clipboard has come to be `text`: a helper says nothing when it has taken it."""
        expected = text.encode()
        try:
            found, _ = await self.helpers.output(back, most=len(expected) + 1)
        except Unavailable:
            return False
        return found == expected

    async def picture(self, *, window: bool) -> bytes:
        program = self._program(Capability.SCREEN)
        words = argv.camera(program, window=window)
        if words is None:
            raise Unavailable(f"{argv.name(program)} cannot tell which window is in front; take the screen.")
        found, whole = await self.helpers.output(words, most=MAX_PICTURE)
        if not whole:
            raise Unavailable(f"The picture is larger than {MAX_PICTURE >> 20} MiB.")
        return found

    def _program(self, need: Capability) -> str:
        if need not in self.needs:
            raise RegistrationError(f"the tool uses {need.value} but does not declare it")
        return self.helpers.program(need)
