"""Runs helper programs for the desktop through the command broker.

A command ends together with everything it started. Processes that must stay, such as an opened program or the
clipboard owner, therefore run as commands that last until the server ends.
"""

import contextlib
import os
from collections.abc import Sequence

import anyio

from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.errors import TimedOut, ToolError, Unavailable
from mcp_toolserver.runtime.desktop.executables import DesktopExecutables
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.interactive import InteractiveProcess, start_interactive
from mcp_toolserver.text.desktop import commands as argv
from mcp_toolserver.text.desktop.failures import explain_failure, explain_timeout

SECONDS = 30.0
MOST_OPEN = 32

_OPEN_SCRIPT = '"$@" >&2 || exit; echo opened; exec sleep 2147483647'


class DesktopHelpers:
    """Runs helpers and tracks the processes that stay."""

    def __init__(
        self,
        broker: Broker,
        found: DesktopExecutables,
        *,
        seconds: float = SECONDS,
        most_open: int = MOST_OPEN,
    ) -> None:
        self._broker = broker
        self._found = found
        self._seconds = seconds
        self._most_open = most_open
        self._opened: list[InteractiveProcess] = []
        self._clipboard_owner: InteractiveProcess | None = None

    def program(self, need: Capability) -> str:
        """Return the program for a capability."""
        return self._found.programs[need]

    def dependency(self, name: str) -> str:
        """Return an additional program by name."""
        return self._found.dependencies[name]

    async def output(
        self,
        command: Sequence[str],
        *,
        text: str = "",
        most: int = 1 << 16,
        seconds: float | None = None,
        empty_status: int = 0,
    ) -> tuple[bytes, bool]:
        """Return at most `most` bytes of a helper's output, and whether that is all.

        `text` is its standard input; `empty_status` is the exit status that means "no result" if nothing was
        written to standard error.

        Raises:
            ToolError: the helper fails; see `explain_failure`.
            TimedOut: it runs longer than `seconds`.
        """
        running, printed = await self._start(command), bytearray()
        with anyio.move_on_after(self._seconds if seconds is None else seconds):
            try:
                # A helper that ended early says why by its status and standard error.
                with contextlib.suppress(Unavailable):
                    await running.write(text.encode())
                running.finish()
                while (data := await running.read()) and len(printed) <= most:
                    printed += data
                if len(printed) > most:
                    return bytes(printed[:most]), False
                status = (await running.wait()).status
                if status not in (0, empty_status) or (status and running.stderr()):
                    raise failure(command, bytes(printed) + running.stderr())
                return bytes(printed), True
            finally:
                await running.end()
        raise TimedOut(explain_timeout(argv.program(command)))

    async def start_detached(self, command: Sequence[str]) -> None:
        """Start a program that stays. Raises: Unavailable: it fails, or too many programs stay."""
        self._opened = [each for each in self._opened if each.exit is None]
        if len(self._opened) >= self._most_open:
            raise Unavailable(
                f"The limit of {self._most_open} opened programs is reached; ask the user to open this one."
            )
        running = await self._start(("/bin/sh", "-c", _OPEN_SCRIPT, "sh", *command))
        output = b""
        try:
            with anyio.move_on_after(self._seconds):
                output = await running.read()
                if not output:
                    raise failure(command)
        except BaseException:
            await running.end()
            raise
        # A running helper, such as a browser in the foreground, has opened its target.
        self._opened.append(running)

    async def start_with_input(self, copying: Sequence[str], text: str) -> InteractiveProcess:
        """Start a helper with `text` as input; the caller ends it."""
        running = await self._start(copying)
        try:
            await running.write(text.encode())
            running.finish()
        except Unavailable:
            await running.end()
            raise failure(copying) from None
        except BaseException:
            await running.end()
            raise
        return running

    async def replace_clipboard_owner(self, holder: InteractiveProcess) -> None:
        """Keep the new clipboard owner running and end the previous one."""
        before, self._clipboard_owner = self._clipboard_owner, holder
        if before is not None:
            await before.end()

    async def aclose(self) -> None:
        """End all processes."""
        for running in (*self._opened, *((self._clipboard_owner,) if self._clipboard_owner else ())):
            await running.end()

    async def _start(self, command: Sequence[str]) -> InteractiveProcess:
        session = (f"{name}={value}" for name, value in self._found.session)
        folder = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return await start_interactive(self._broker, ("/usr/bin/env", *session, *command), cwd=folder)
        finally:
            os.close(folder)


def failure(command: Sequence[str], printed: bytes = b"") -> ToolError:
    """Return the error for a helper that failed and printed this."""
    return explain_failure(argv.program(command), printed)
