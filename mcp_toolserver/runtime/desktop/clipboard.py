"""The clipboard: what its helpers leave unsaid is found out by pasting."""

from collections.abc import Sequence

import anyio

from mcp_toolserver.errors import NotFound, Unavailable
from mcp_toolserver.runtime.dialogue import Dialogue
from mcp_toolserver.runtime.helper_programs import SECONDS, HelperPrograms, failed
from mcp_toolserver.text import desktop as argv

_POLL_SECONDS = 0.05


async def paste(helpers: HelperPrograms, program: str, most: int) -> tuple[str, bool]:
    """The text, at most so many bytes, and whether that is all."""
    try:
        found, whole = await helpers.output(argv.pasting(program), most=most)
    except Unavailable:
        raise NotFound("There is no text on the clipboard, or it cannot be reached.") from None
    return found.decode("utf-8", "replace" if whole else "ignore"), whole


async def copy(helpers: HelperPrograms, program: str, text: str) -> None:
    """Put a text there, and let the old one go only then."""
    running = await helpers.hold(argv.copying(program), text)
    try:
        taken = await _taken(helpers, running, argv.pasting(argv.reader(program)), text)
    except BaseException:
        await running.end()
        raise
    if not taken:
        await running.end()
        raise failed(program)
    await helpers.keep(running)


async def _taken(helpers: HelperPrograms, running: Dialogue, back: Sequence[str], text: str) -> bool:
    with anyio.move_on_after(SECONDS):
        while running.exit is None or running.exit.status == 0:
            if await _holds(helpers, back, text):
                return True
            await anyio.sleep(_POLL_SECONDS)
    return False


async def _holds(helpers: HelperPrograms, back: Sequence[str], text: str) -> bool:
    """Whether the clipboard has come to be `text`: a helper says nothing when it has taken it."""
    expected = text.encode()
    try:
        found, _ = await helpers.output(back, most=len(expected) + 1)
    except Unavailable:
        return False
    return found == expected
