"""Files that an index of this machine names, of which those are shown that a call may see."""

from mcp_toolserver.capabilities.desktop import Indexed
from mcp_toolserver.errors import ToolError, Unavailable
from mcp_toolserver.runtime.beneath import below
from mcp_toolserver.runtime.fs import Workspace
from mcp_toolserver.runtime.helper_programs import HelperPrograms
from mcp_toolserver.runtime.search_names import showable
from mcp_toolserver.text.desktop import name
from mcp_toolserver.text.desktop_find import MOST_NAMED, lookup, named, status_of_nothing

_MOST_BYTES = 4 << 20


async def look_up(helpers: HelperPrograms, program: str, query: str, folder: str) -> tuple[list[str], bool]:
    """What the index names, and whether it may have more.

    Raises:
        Unavailable: it cannot be asked.
    """
    words = lookup(program, query, folder)
    try:
        printed, whole = await helpers.output(words, most=_MOST_BYTES, nothing=status_of_nothing(program))
    except Unavailable:
        raise Unavailable(
            f"{name(program)} failed: there may be no index. Use glob_search or grep_search instead."
        ) from None
    names = named(program, printed, whole=whole)
    return names, not whole or len(names) >= MOST_NAMED


def shown(workspace: Workspace, folder: str, names: list[str], most: int, *, cut: bool) -> Indexed:
    """Of `names`, which an index gave, those in `folder` that may be seen.

    What an index names may lie anywhere, or lead there by a link, and may be gone by now.
    """
    there = [_kept(workspace, path) for path in names if below(folder, path) not in (None, ".")]
    found = list(dict.fromkeys(path for path in there if path))
    return Indexed(
        files=tuple(map(showable, found[:most])),
        withheld=there.count(None),
        more=cut or len(found) > most,
    )


def _kept(workspace: Workspace, absolute: str) -> str | None:
    """How a file is called here: empty for one that is gone, None for one that must not be shown."""
    try:
        path = workspace.canonical(absolute)
        if workspace.is_hidden(path):
            return None
        return "" if workspace.kind(path) == "missing" else path
    except ToolError:
        return None
