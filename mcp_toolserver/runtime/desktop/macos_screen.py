"""Checks on macOS whether the screen can be captured, and finds its windows."""

from collections.abc import Mapping

from mcp_toolserver.errors import Unavailable
from mcp_toolserver.runtime.desktop.helper_process import DesktopHelpers, failure
from mcp_toolserver.text.desktop.commands import Argv, capture
from mcp_toolserver.text.desktop.failures import NO_SESSION, SCREEN_RECORDING
from mcp_toolserver.text.desktop.window_commands import Window, macos_screen, parse_macos_screen

_PROBLEMS: Mapping[str, str] = {
    "no session": NO_SESSION,
    "locked": "The screen is locked. Ask the user to unlock it, then call again.",
    "permission": SCREEN_RECORDING,
}


async def windows(helpers: DesktopHelpers) -> list[Window]:
    """Return the windows on the screen, from front to back.

    Raises:
        Unavailable: no picture can be taken.
    """
    command = macos_screen(helpers.dependency("osascript"))
    printed, _ = await helpers.output(command, most=1 << 20)
    try:
        problem, found = parse_macos_screen(printed)
    except ValueError:
        raise failure(command) from None
    if problem:
        raise Unavailable(_PROBLEMS.get(problem, SCREEN_RECORDING))
    return found


async def camera(helpers: DesktopHelpers, program: str, *, front: bool) -> Argv:
    """Return the command that prints a picture of the screen, or of the window in front.

    Raises:
        Unavailable: no picture can be taken, or there is no window.
    """
    found = await windows(helpers)
    if front and not found:
        raise Unavailable("There is no window on the screen; capture the screen.")
    return portrait(helpers, program, found[0] if front else None)


def portrait(helpers: DesktopHelpers, program: str, window: Window | None) -> Argv:
    """Return the command that prints a picture of a window, or of the screen."""
    return capture(program, helpers.dependency("sips"), window.id if window else "")
