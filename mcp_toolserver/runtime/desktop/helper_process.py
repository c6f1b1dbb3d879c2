"""Programs that reach a desktop for this server, run as any command is.

A command and all it started end together. So what has to stay, such as a program that was opened or the
holder of a copied text, is kept as a command that goes on until the server ends.
"""

import os
from collections.abc import Sequence

import anyio

from mcp_toolserver.capabilities.prices import Capability
from mcp_toolserver.errors import TimedOut, Unavailable
from mcp_toolserver.runtime.broker import Broker
from mcp_toolserver.runtime.desktop_programs import DesktopPrograms
from mcp_toolserver.runtime.dialogue import Dialogue, converse
from mcp_toolserver.text import desktop as argv

SECONDS = 30.0
MOST_OPEN = 32

_OPEN_SCRIPT = '"$@" >&2 || exit; echo opened; exec sleep 2147483647'


class HelperPrograms:
    """What there is, and what was started and stays."""

    def __init__(
        self,
        broker: Broker,
        found: DesktopPrograms,
        *,
        seconds: float = SECONDS,
        most_open: int = MOST_OPEN,
    ) -> None:
        self._broker = broker
        self._found = found
        self._seconds = seconds
        self._most_open = most_open
        self._opened: list[Dialogue] = []
        self._holder: Dialogue | None = None

    def program(self, need: Capability) -> str:
        """The helper for it."""
        return self._found.programs[need]

    def beside(self, name: str) -> str:
        """A program that another one needs."""
        return self._found.beside[name]

    async def output(
        self,
        words: Sequence[str],
        *,
        most: int = 1 << 16,
        seconds: float | None = None,
        nothing: int = 0,
    ) -> tuple[bytes, bool]:
        """What a helper prints up to its end, at most `most` bytes; and whether that is all.

        `nothing` is the status with which it says that there is nothing, unless it complains.

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
                status = (await running.wait()).status
                if status not in (0, nothing) or (status and running.complaints()):
                    raise failed(words[0])
                return bytes(printed), True
            finally:
                await running.end()
        raise TimedOut(f"{argv.name(words[0])} took too long. Ask the user whether their desktop is there.")

    async def stay(self, words: Sequence[str]) -> None:
        """Have a helper start something that stays. Raises: Unavailable: it fails, or too much has stayed."""
        self._opened = [each for each in self._opened if each.exit is None]
        if len(self._opened) >= self._most_open:
            raise Unavailable(
                f"{self._most_open} things were opened and stay open; ask the user to open this one."
            )
        running = await self._start(("/bin/sh", "-c", _OPEN_SCRIPT, "sh", *words))
        heard = b""
        try:
            with anyio.move_on_after(self._seconds):
                heard = await running.hear()
                if not heard:
                    raise failed(words[0])
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
        except Unavailable:
            await running.end()
            raise failed(copying[0]) from None
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


def failed(program: str) -> Unavailable:
    """What is said of one that did not do it."""
    return Unavailable(f"{argv.name(program)} failed. Ask the user whether their desktop is there.")
