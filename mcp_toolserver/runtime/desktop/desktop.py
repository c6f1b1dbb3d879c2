"""The desktop capability of one call, limited to what its tool declared."""

from dataclasses import dataclass

from mcp_toolserver.capabilities.desktop import Indexed, WindowPictures
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.notes import Notes
from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.errors import NotFound, RegistrationError, Unavailable
from mcp_toolserver.runtime.desktop import clipboard, file_index, macos_screen, window_screenshots
from mcp_toolserver.runtime.desktop.helper_process import DesktopHelpers
from mcp_toolserver.runtime.desktop.notes import AppleNotes
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.text.desktop import commands as argv
from mcp_toolserver.text.desktop.osascript import NOTICE, encode_request, script_command

SPEECH_SECONDS = 150.0


@dataclass(frozen=True, kw_only=True)
class CallDesktop:
    """Implements `capabilities.Desktop`."""

    helpers: DesktopHelpers
    workspace: Workspace
    needs: frozenset[Capability]

    @property
    def notes(self) -> Notes:
        return AppleNotes(helpers=self.helpers, program=self._program)

    async def open(self, target: str) -> None:
        program = self._program(Capability.DESKTOP_OPEN)
        await self._start(program, argv.opening(program, target))

    async def open_path(self, path: CanonicalPath) -> None:
        await self.open(self._absolute(path))

    async def launch(self, app: str, target: str) -> None:
        program = self._program(Capability.DESKTOP_APP)
        await self._start(program, argv.launching(program, app, target))

    async def launch_path(self, app: str, path: CanonicalPath) -> None:
        await self.launch(app, self._absolute(path))

    async def notify(self, title: str, message: str) -> None:
        program = self._program(Capability.DESKTOP_NOTIFY)
        if argv.name(program) == "osascript":
            request = encode_request({"title": title, "message": message})
            await self.helpers.output(script_command(program, NOTICE), text=request)
        else:
            await self.helpers.output(argv.notice(program, title, message))

    async def say(self, text: str, voice: str) -> None:
        command = argv.speech(self._program(Capability.DESKTOP_SAY), text, voice)
        await self.helpers.output(command, seconds=SPEECH_SECONDS)

    async def copied(self, most: int) -> tuple[str, bool]:
        return await clipboard.paste(self.helpers, self._program(Capability.CLIPBOARD_READ), most)

    async def copy(self, text: str) -> None:
        await clipboard.copy(self.helpers, self._program(Capability.CLIPBOARD_WRITE), text)

    async def picture(self, *, window: bool) -> bytes:
        program = self._program(Capability.SCREEN)
        if argv.name(program) == "screencapture":
            command = await macos_screen.camera(self.helpers, program, front=window)
        else:
            command = argv.camera(program, window=window)
        if command is None:
            raise Unavailable(f"{argv.name(program)} cannot capture a window; capture the screen.")
        found, whole = await self.helpers.output(command, most=argv.MAX_PICTURE)
        if not whole:
            raise Unavailable(f"The picture is larger than {argv.MAX_PICTURE >> 20} MiB.")
        return found

    async def windows(self, most: int) -> WindowPictures:
        return await window_screenshots.pictures(self.helpers, self._program(Capability.WINDOWS), most)

    async def find(self, query: str, path: CanonicalPath, most: int) -> Indexed:
        program = self._program(Capability.DESKTOP_FIND)
        if self.workspace.kind(path) != "folder":
            raise NotFound(f"'{path}' is not a folder. Use a folder of the workspace.")
        folder = self.workspace.spellings(path)[-1]
        names, cut = await file_index.query_index(self.helpers, program, query, folder)
        names = file_index.in_folder(program, names, folder)
        return file_index.visible(self.workspace, names, most, cut=cut)

    async def _start(self, program: str, command: argv.Argv) -> None:
        await (
            self.helpers.output(command) if argv.hands_over(program) else self.helpers.start_detached(command)
        )

    def _absolute(self, path: CanonicalPath) -> str:
        if self.workspace.kind(path) == "missing":
            raise NotFound(f"'{path}' does not exist.")
        return self.workspace.spellings(path)[-1]

    def _program(self, need: Capability) -> str:
        if need not in self.needs:
            raise RegistrationError(f"the tool uses {need.value} but does not declare it")
        return self.helpers.program(need)
