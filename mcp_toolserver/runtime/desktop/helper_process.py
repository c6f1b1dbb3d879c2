"""Runs helper programs for the desktop through the command broker.

A command ends together with everything it started. Processes that must stay, such as an opened program or the
clipboard owner, therefore run as commands that last until the server ends.
"""

import contextlib
import os
from collections.abc import Sequence

import anyio

from mcp_toolserver.errors import TimedOut, Unavailable
from mcp_toolserver.runtime.desktop.executables import DesktopExecutables
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.interactive import InteractiveProcess, start_interactive
from mcp_toolserver.text.desktop.programs import Program, explain_failure, explain_timeout

_MOST_OPEN = 32

_OPEN_SCRIPT = '"$@" >&2 || exit; echo opened; exec sleep 2147483647'
_POLL_SECONDS = 0.05


class DesktopHelpers:
    """Runs helpers and tracks the processes that stay."""

    def __init__(self, broker: Broker, found: DesktopExecutables) -> None:
        self.found = found
        self._broker = broker
        self._opened: list[InteractiveProcess] = []
        self._clipboard_owner: InteractiveProcess | None = None

    async def output(
        self, row: Program, command: Sequence[str], *, text: str = "", most: int = 0
    ) -> tuple[bytes, bool]:
        """Return at most `most` bytes of a helper's output, and whether that is all.

        The limits are those of `row`. `text` is the helper's standard input.

        Raises:
            ToolError: the helper fails; see `explain_failure`.
            TimedOut: it takes too long.
        """
        most = most or row.most
        running, printed = await self._start(command), bytearray()
        with anyio.move_on_after(row.seconds):
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
                if status not in (0, row.empty_status) or (status and running.stderr()):
                    raise explain_failure(command, bytes(printed) + running.stderr())
                return bytes(printed), True
            finally:
                await running.end()
        raise TimedOut(row.late or explain_timeout(command))

    async def start_detached(self, row: Program, command: Sequence[str]) -> None:
        """Start a program that stays. Raises: Unavailable: it fails, or too many programs stay."""
        self._opened = [each for each in self._opened if each.exit is None]
        if len(self._opened) >= _MOST_OPEN:
            raise Unavailable(
                f"The limit of {_MOST_OPEN} opened programs is reached; ask the user to open this one."
            )
        running = await self._start(("/bin/sh", "-c", _OPEN_SCRIPT, "sh", *command))
        try:
            with anyio.move_on_after(row.seconds):
                if not await running.read():
                    raise explain_failure(command)
        except BaseException:
            await running.end()
            raise
        # A running helper, such as a browser in the foreground, has opened its target.
        self._opened.append(running)

    async def copy(self, row: Program, command: Sequence[str], back: Sequence[str], text: str) -> None:
        """Copy a text; the previous clipboard owner ends only after that.

        `back` prints the clipboard: a copy is verified because helpers do not report success.

        Raises:
            Unavailable: the clipboard does not contain the text after that.
            TimedOut: the text cannot be read back in time.
        """
        running = await self._start(command)
        try:
            try:
                await running.write(text.encode())
                running.finish()
            except Unavailable:
                raise explain_failure(command) from None
            with anyio.move_on_after(row.seconds) as limit:
                await self._wait_until_copied(row, running, (command, back), text.encode())
            if limit.cancelled_caught:
                raise TimedOut(explain_timeout(back))
        except BaseException:
            await running.end()
            raise
        before, self._clipboard_owner = self._clipboard_owner, running
        if before is not None:
            await before.end()

    async def _wait_until_copied(
        self, row: Program, running: InteractiveProcess, commands: Sequence[Sequence[str]], text: bytes
    ) -> None:
        found = b""
        while True:
            ended = running.exit
            if ended is not None and ended.status:
                raise explain_failure(commands[0], running.stderr())
            with contextlib.suppress(Unavailable):
                found, _ = await self.output(row, commands[1], most=len(text) + 1)
            if found == text:
                return
            if ended is not None:
                raise Unavailable(
                    "The clipboard does not contain the text: another program changed it, or reading it back "
                    "was not permitted."
                )
            await anyio.sleep(_POLL_SECONDS)

    async def aclose(self) -> None:
        """End all processes."""
        for running in (*self._opened, *((self._clipboard_owner,) if self._clipboard_owner else ())):
            await running.end()

    async def _start(self, command: Sequence[str]) -> InteractiveProcess:
        session = (f"{name}={value}" for name, value in self.found.session)
        folder = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return await start_interactive(self._broker, ("/usr/bin/env", *session, *command), cwd=folder)
        finally:
            os.close(folder)
