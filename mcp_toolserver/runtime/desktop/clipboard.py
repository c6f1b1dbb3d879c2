"""Reads and writes the clipboard; a copy is verified by pasting, because helpers do not report success."""

from collections.abc import Sequence

import anyio

from mcp_toolserver.errors import InvalidInput, NotFound, TimedOut, Unavailable
from mcp_toolserver.runtime.desktop.helper_process import SECONDS, DesktopHelpers, failure
from mcp_toolserver.runtime.processes.interactive import InteractiveProcess
from mcp_toolserver.text.desktop import commands as argv
from mcp_toolserver.text.desktop.failures import explain_timeout

_POLL_SECONDS = 0.05


async def paste(helpers: DesktopHelpers, program: str, most: int) -> tuple[str, bool]:
    """Return at most `most` bytes of the text, and whether that is all."""
    try:
        found, whole = await helpers.output(argv.pasting(program), most=most)
    except Unavailable:
        found, whole = b"", True
    if not found:
        raise NotFound("The clipboard contains no text, or cannot be read.")
    return found.decode("utf-8", "replace" if whole else "ignore"), whole


async def copy(helpers: DesktopHelpers, program: str, text: str, *, seconds: float = SECONDS) -> None:
    """Copy a text; the previous clipboard owner ends only after that.

    Raises:
        InvalidInput: the program would not store it as plain text.
        Unavailable: the clipboard does not contain the text after that.
        TimedOut: the text cannot be read back within `seconds`.
    """
    if not argv.copies_as_text(program, text):
        raise InvalidInput("macOS would store this as formatted text. Begin it with another character.")
    command = argv.copying(program)
    running = await helpers.start_with_input(command, text)
    try:
        with anyio.move_on_after(seconds) as limit:
            await _wait_until_copied(helpers, running, command, text)
        if limit.cancelled_caught:
            raise TimedOut(explain_timeout(argv.reader(program)))
    except BaseException:
        await running.end()
        raise
    await helpers.replace_clipboard_owner(running)


async def _wait_until_copied(
    helpers: DesktopHelpers, running: InteractiveProcess, command: Sequence[str], text: str
) -> None:
    back = argv.pasting(argv.reader(argv.program(command)))
    while True:
        ended = running.exit
        if ended is not None and ended.status:
            raise failure(command, running.stderr())
        if await _clipboard_equals(helpers, back, text):
            return
        if ended is not None:
            raise Unavailable(
                "The clipboard does not contain the text: another program changed it, or reading it back was "
                "not permitted."
            )
        await anyio.sleep(_POLL_SECONDS)


async def _clipboard_equals(helpers: DesktopHelpers, back: Sequence[str], text: str) -> bool:
    """Whether the clipboard contains `text`."""
    expected = text.encode()
    try:
        found, _ = await helpers.output(back, most=len(expected) + 1)
    except Unavailable:
        return False
    return found == expected
