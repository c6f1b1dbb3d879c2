"""The desktop: runs helper programs through the command broker.

A command ends together with everything it started. Processes that must stay, such as an opened program or the
clipboard owner, therefore run as commands that last until the server ends.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import anyio
from pydantic import JsonValue

from mcp_toolserver.capabilities.desktop import Indexed, NotesReply
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.errors import InvalidInput, NotFound, RegistrationError, TimedOut, ToolError, Unavailable
from mcp_toolserver.runtime.desktop.executables import DesktopExecutables
from mcp_toolserver.runtime.files.path_resolver import relative_to, showable
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.interactive import InteractiveProcess, start_interactive
from mcp_toolserver.text.desktop import notes, scripts
from mcp_toolserver.text.desktop.programs import (
    FORMATTED,
    MACOS,
    MAX_PICTURE,
    MOST_NAMED,
    PROGRAMS,
    Program,
    Words,
    explain_failure,
    explain_timeout,
    is_unindexed,
    script,
)
from mcp_toolserver.text.desktop.windows import Window, child_ids, managed_ids, visible, windows_of_macos

MAX_PICTURES = 8 << 20
"""Total bytes of the pictures of all windows."""

_MOST_LOOKED_AT = 200
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
        self, row: Program, command: Words, *, text: str = "", most: int = 0
    ) -> tuple[bytes, bool]:
        """Return at most `most` bytes of a helper's output, and whether that is all. The limits are those of
        `row`; `text` is the helper's standard input.

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
                    await running.stdin.write(text.encode())
                running.stdin.close()
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
        raise TimedOut(explain_timeout(row, command))

    async def start_detached(self, row: Program, command: Words) -> None:
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

    async def copy(self, row: Program, command: Words, back: Words, text: str) -> None:
        """Copy a text; the previous clipboard owner ends only after that. `back` prints the clipboard: a copy
        is verified because helpers do not report success.

        Raises:
            Unavailable: the clipboard does not contain the text after that.
            TimedOut: the text cannot be read back in time.
        """
        running = await self._start(command)
        try:
            try:
                await running.stdin.write(text.encode())
                running.stdin.close()
            except Unavailable:
                raise explain_failure(command) from None
            with anyio.move_on_after(row.seconds) as limit:
                await self._wait_until_copied(row, running, (command, back), text.encode())
            if limit.cancelled_caught:
                raise TimedOut(explain_timeout(row, back))
        except BaseException:
            await running.end()
            raise
        before, self._clipboard_owner = self._clipboard_owner, running
        if before is not None:
            await before.end()

    async def _wait_until_copied(
        self, row: Program, running: InteractiveProcess, commands: Sequence[Words], text: bytes
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
        for running in (*self._opened, *((self._clipboard_owner,) if self._clipboard_owner else ())):
            await running.end()

    async def _start(self, command: Words) -> InteractiveProcess:
        session = (f"{name}={value}" for name, value in self.found.session)
        return await start_interactive(self._broker, ("/usr/bin/env", *session, *command))


@dataclass(frozen=True, kw_only=True)
class CallDesktop:
    """Access to the user's desktop, limited to the capabilities that the tool declares.

    All raise `Unavailable` where the helper program fails, and `TimedOut` where it takes too long.
    """

    helpers: DesktopHelpers
    workspace: Workspace
    needs: frozenset[Capability]

    async def run(self, need: Capability, *values: str, path: str = "") -> tuple[bytes, bool]:
        """Run the program for `need` with these values, and with a file or folder of the workspace.

        Returns its output as far as it is read, and whether that is all.
        """
        row, at = self._installed(need)
        if path:
            if self.workspace.kind(CanonicalPath(path)) == "missing":
                raise NotFound(f"'{path}' does not exist.")
            values = (*filter(None, values), self.workspace.spellings(CanonicalPath(path))[-1])
        if row.stays:
            await self.helpers.start_detached(row, row.argv(at, values))
            return b"", True
        return await self.helpers.output(row, row.argv(at, values), text=row.stdin(values))

    async def copy(self, text: str) -> None:
        """Put a text on the clipboard, for as long as this server runs. Needs clipboard_write."""
        row, at = self._installed(Capability.CLIPBOARD_WRITE)
        if row.name == "pbcopy" and text.startswith(FORMATTED):
            raise InvalidInput("macOS would store this as formatted text. Begin it with another character.")
        wanted = (Capability.CLIPBOARD_READ, row.reader or row.name)
        reader = next(each for each in PROGRAMS if (each.need, each.name) == wanted)
        back = reader.argv((at[0].removesuffix(row.name) + reader.name,), ())
        await self.helpers.copy(row, row.argv(at, ()), back, text)

    async def picture(self, mode: Literal["screen", "window"]) -> bytes:
        """Capture the screen, or the active window, as PNG. Needs screen."""
        row, at = self._installed(Capability.SCREEN)
        front = "front" if mode == "window" else ""
        if row.display == MACOS:
            found = await self._windows_of_macos(row, at)
            if front and not found:
                raise Unavailable("There is no window on the screen; capture the screen.")
            front = front and found[0].id
        data, whole = await self.run(Capability.SCREEN, front)
        if not whole:
            raise Unavailable(f"The picture is larger than {MAX_PICTURE >> 20} MiB.")
        return data

    async def windows(self, most: int) -> tuple[list[tuple[str, bytes]], int]:
        """Capture at most `most` windows on the screen. Needs windows.

        Returns titles and pictures, and the number of windows without a picture: too many, too large, or not
        capturable.
        """
        row, at = self._installed(Capability.WINDOWS)
        found = await (self._windows_of_macos if row.display == MACOS else self._windows_of_x)(row, at)
        taken: list[tuple[str, bytes]] = []
        room = MAX_PICTURES
        error: ToolError = explain_failure(at[:1])
        for window in found[:most]:
            command = row.argv(at, (window.id, ",".join(map(str, window.area))))
            try:
                data, whole = await self.helpers.output(row, command, most=room)
            except Unavailable as failed:  # The window may have closed.
                error = failed
                continue
            if whole:
                taken.append((window.title, data))
                room -= len(data)
        if found and not taken:
            raise error
        return taken, len(found) - len(taken)

    async def find(self, query: str, path: CanonicalPath, most: int) -> Indexed:
        """Search a folder with the machine's file index. Needs desktop_find."""
        row, at = self._installed(Capability.DESKTOP_FIND)
        if self.workspace.kind(path) != "folder":
            raise NotFound(f"'{path}' is not a folder. Use a folder of the workspace.")
        folder = self.workspace.spellings(path)[-1]
        try:
            printed, whole = await self.run(Capability.DESKTOP_FIND, query, folder)
        except Unavailable:
            raise Unavailable(
                f"{row.name} failed: there may be no index. Use glob_search or grep_search instead."
            ) from None
        names, on_macos = row.paths(printed, whole), row.display == MACOS
        if not names and on_macos and await self._is_unindexed(row, at, folder):
            raise Unavailable(
                "Spotlight does not index the volume of this folder. Use glob_search or grep_search instead."
            )
        # mdfind names nothing outside the folder, and may spell it otherwise: in the letter case and Unicode
        # form that the volume stores.
        places = [(relative_to(folder, name), name) for name in names]
        there = [self._visible(name) for place, name in places if place != "." and (place or on_macos)]
        found = list(dict.fromkeys(filter(None, there)))
        return Indexed(
            files=tuple(map(showable, found[:most])),
            withheld=there.count(None),
            more=not whole or len(names) >= MOST_NAMED or len(found) > most,
        )

    async def note(self, do: Literal["list", "read", "create", "update"], **request: JsonValue) -> NotesReply:
        """Ask Apple Notes. Needs notes_read, notes_write to create, and both to update.

        Raises `NotFound` for what is not there, and `InvalidInput` where several could be meant.
        """
        (row, at), *_ = [self._installed(need) for need in notes.NEEDS[do]]
        text = notes.encode_request(do, request)
        printed, _ = await self.helpers.output(row, row.argv(at, ()), text=text)
        return notes.parse_reply(printed, do, request)

    async def _windows_of_macos(self, row: Program, at: Words) -> list[Window]:
        """Return the windows from front to back. Raises: Unavailable: the screen cannot be captured."""
        command = script(scripts.SCREEN)(at[1:], ())
        printed, _ = await self.helpers.output(row, command)
        try:
            return windows_of_macos(printed)
        except ValueError:
            raise explain_failure(command) from None

    async def _windows_of_x(self, row: Program, at: Words) -> list[Window]:
        _, xprop, xwininfo = at
        ids = managed_ids(await self._text(row, (xprop, "-root", "_NET_CLIENT_LIST")))
        if ids is None:
            # There is no window manager.
            ids = child_ids(await self._text(row, (xwininfo, "-root", "-children")))
        screen = visible("-root", await self._text(row, (xwininfo, "-stats", "-root")))
        if screen is None:
            raise explain_failure((xwininfo,))
        found: list[Window | None] = []
        for each in ids[:_MOST_LOOKED_AT]:
            with contextlib.suppress(Unavailable):  # It may have closed.
                printed = await self._text(row, (xwininfo, "-stats", "-id", each))
                found.append(visible(each, printed, screen.area))
        return [window for window in found if window]

    async def _text(self, row: Program, command: Words) -> str:
        printed, whole = await self.helpers.output(row, command)
        if not whole:
            raise explain_failure(command)
        return printed.decode("utf-8", "replace")

    async def _is_unindexed(self, row: Program, at: Words, folder: str) -> bool:
        """Whether the index is known to leave the volume of `folder` out; mdfind then finds nothing."""
        try:
            # Source: mdutil(1).
            printed, _ = await self.helpers.output(row, (at[0].removesuffix("mdfind") + "mdutil", "-a", "-s"))
        except ToolError:
            return False
        return is_unindexed(printed, folder)

    def _visible(self, absolute: str) -> str | None:
        """Return the workspace path; empty if the file is gone, None if it must not be shown.

        An index can name files anywhere, links to other folders, and files that no longer exist.
        """
        try:
            path = self.workspace.canonical(absolute)
            if self.workspace.is_hidden(path):
                return None
            return "" if self.workspace.kind(path) == "missing" else path
        except ToolError:
            return None

    def _installed(self, need: Capability) -> tuple[Program, Words]:
        if need not in self.needs:
            raise RegistrationError(f"the tool uses {need.label} but does not declare it")
        return self.helpers.found.found[need]
