"""Pictures of the windows that are on the screen, each by itself."""

from mcp_toolserver.capabilities.desktop import WindowPicture, WindowPictures
from mcp_toolserver.errors import Unavailable
from mcp_toolserver.runtime.helper_programs import HelperPrograms, failed
from mcp_toolserver.text import desktop as argv
from mcp_toolserver.text.desktop_windows import (
    Area,
    Window,
    child_ids,
    children,
    described,
    managed,
    managed_ids,
    particulars,
    portrait,
    shown_on_macos,
    windows_on_macos,
)

MAX_PICTURES = 8 << 20
"""Bytes of all together."""

_MOST_LOOKED_AT = 200


async def pictures(helpers: HelperPrograms, program: str, most: int) -> WindowPictures:
    """Those of at most so many windows.

    Raises:
        Unavailable: it cannot be told which windows there are, or none of them gives a picture.
    """
    windows = await (_on_macos if argv.name(program) == "screencapture" else _on_x)(helpers)
    taken: list[WindowPicture] = []
    room = MAX_PICTURES
    for window in windows[:most]:
        data = await _picture(helpers, portrait(program, window), room)
        if data is not None:
            taken.append(WindowPicture(title=window.title, data=data))
            room -= len(data)
    if windows and not taken:
        raise failed(program)
    return WindowPictures(windows=tuple(taken), others=len(windows) - len(taken))


async def _picture(helpers: HelperPrograms, words: argv.Argv, room: int) -> bytes | None:
    """None where it is too large, or the window has gone meanwhile."""
    try:
        data, whole = await helpers.output(words, most=room)
    except Unavailable:
        return None
    return data if whole else None


async def _on_macos(helpers: HelperPrograms) -> list[Window]:
    printed = await _printed(helpers, shown_on_macos(helpers.beside("osascript")))
    try:
        return windows_on_macos(printed)
    except ValueError:
        raise failed("osascript") from None


async def _on_x(helpers: HelperPrograms) -> list[Window]:
    xprop, xwininfo = helpers.beside("xprop"), helpers.beside("xwininfo")
    ids = managed_ids(await _printed(helpers, managed(xprop)))
    if ids is None:
        ids = child_ids(await _printed(helpers, children(xwininfo)))
    screen = described("-root", await _printed(helpers, particulars(xwininfo, "-root")))
    if screen is None or screen.area is None:
        raise failed(xwininfo)
    found = [await _seen(helpers, xwininfo, each, screen.area) for each in ids[:_MOST_LOOKED_AT]]
    return [window for window in found if window is not None]


async def _seen(helpers: HelperPrograms, xwininfo: str, window: str, screen: Area) -> Window | None:
    """None for a window that is not on the screen, or has gone meanwhile."""
    try:
        found = described(window, await _printed(helpers, particulars(xwininfo, window)))
    except Unavailable:
        return None
    area = found and found.area and found.area.within(screen)
    return Window(id=window, title=found.title, area=area) if found and area else None


async def _printed(helpers: HelperPrograms, words: argv.Argv) -> str:
    printed, whole = await helpers.output(words, most=1 << 20)
    if not whole:
        raise failed(words[0])
    return printed.decode("utf-8", "replace")
