"""Takes a screenshot of each visible window."""

from mcp_toolserver.capabilities.desktop import WindowPicture, WindowPictures
from mcp_toolserver.errors import ToolError, Unavailable
from mcp_toolserver.runtime.desktop import macos_screen
from mcp_toolserver.runtime.desktop.helper_process import DesktopHelpers, failure
from mcp_toolserver.text.desktop import commands as argv
from mcp_toolserver.text.desktop.window_commands import (
    Area,
    Window,
    child_ids,
    children,
    described,
    managed,
    managed_ids,
    particulars,
    portrait,
)

MAX_PICTURES = 8 << 20
"""Total bytes of all pictures."""

_MOST_LOOKED_AT = 200


async def pictures(helpers: DesktopHelpers, program: str, most: int) -> WindowPictures:
    """Return the pictures of at most `most` windows.

    Raises:
        Unavailable: the windows cannot be listed, or none can be captured.
    """
    on_macos = argv.name(program) == "screencapture"
    windows = await (macos_screen.windows if on_macos else _on_x)(helpers)
    taken: list[WindowPicture] = []
    room = MAX_PICTURES
    error: ToolError = failure((program,))
    for window in windows[:most]:
        command = macos_screen.portrait(helpers, program, window) if on_macos else portrait(program, window)
        try:
            data, whole = await helpers.output(command, most=room)
        except Unavailable as failed:  # The window may have closed.
            error = failed
            continue
        if whole:
            taken.append(WindowPicture(title=window.title, data=data))
            room -= len(data)
    if windows and not taken:
        raise error
    return WindowPictures(windows=tuple(taken), others=len(windows) - len(taken))


async def _on_x(helpers: DesktopHelpers) -> list[Window]:
    xprop, xwininfo = helpers.dependency("xprop"), helpers.dependency("xwininfo")
    ids = managed_ids(await _output_text(helpers, managed(xprop)))
    if ids is None:
        ids = child_ids(await _output_text(helpers, children(xwininfo)))
    screen = described("-root", await _output_text(helpers, particulars(xwininfo, "-root")))
    if screen is None or screen.area is None:
        raise failure((xwininfo,))
    found = [await _describe_window(helpers, xwininfo, each, screen.area) for each in ids[:_MOST_LOOKED_AT]]
    return [window for window in found if window is not None]


async def _describe_window(
    helpers: DesktopHelpers, xwininfo: str, window: str, screen: Area
) -> Window | None:
    """Describe a window; None if it is not visible or has closed."""
    try:
        found = described(window, await _output_text(helpers, particulars(xwininfo, window)))
    except Unavailable:
        return None
    area = found and found.area and found.area.clipped_to(screen)
    return Window(id=window, title=found.title, area=area) if found and area else None


async def _output_text(helpers: DesktopHelpers, command: argv.Argv) -> str:
    printed, whole = await helpers.output(command, most=1 << 20)
    if not whole:
        raise failure(command)
    return printed.decode("utf-8", "replace")
