"""Reads and writes the clipboard; a copy is verified by pasting, because helpers do not report success."""

from collections.abc import Sequence

import anyio

from mcp_toolserver.errors import NotFound, Unavailable
from mcp_toolserver.runtime.desktop.helper_process import SECONDS, DesktopHelpers, failure
from mcp_toolserver.runtime.processes.interactive import InteractiveProcess
from mcp_toolserver.text.desktop import commands as argv

_POLL_SECONDS = 0.05


async def paste(helpers: DesktopHelpers, program: str, most: int) -> tuple[str, bool]:
    """Return at most `most` bytes of the text, and whether that is all."""
    try:
        found, whole = await helpers.output(argv.pasting(program), most=most)
    except Unavailable:
        raise NotFound("The clipboard contains no text, or cannot be read.") from None
    return found.decode("utf-8", "replace" if whole else "ignore"), whole


async def copy(helpers: DesktopHelpers, program: str, text: str) -> None:
    """Copy a text; the previous clipboard owner ends only after that."""
    running = await helpers.start_with_input(argv.copying(program), text)
    try:
        taken = await _wait_until_copied(helpers, running, argv.pasting(argv.reader(program)), text)
    except BaseException:
        await running.end()
        raise
    if not taken:
        await running.end()
        raise failure(program)
    await helpers.replace_clipboard_owner(running)


async def _wait_until_copied(
    helpers: DesktopHelpers, running: InteractiveProcess, back: Sequence[str], text: str
) -> bool:
    with anyio.move_on_after(SECONDS):
        while running.exit is None or running.exit.status == 0:
            if await _clipboard_equals(helpers, back, text):
                return True
            await anyio.sleep(_POLL_SECONDS)
    return False


async def _clipboard_equals(helpers: DesktopHelpers, back: Sequence[str], text: str) -> bool:
    """Whether the clipboard contains `text`."""
    expected = text.encode()
    try:
        found, _ = await helpers.output(back, most=len(expected) + 1)
    except Unavailable:
        return False
    return found == expected
