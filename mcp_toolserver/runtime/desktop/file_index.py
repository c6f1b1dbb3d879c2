"""Searches the system's file index and returns only files that the call may see."""

from mcp_toolserver.capabilities.desktop import Indexed
from mcp_toolserver.errors import ToolError, Unavailable
from mcp_toolserver.runtime.desktop.helper_process import DesktopHelpers
from mcp_toolserver.runtime.files.path_resolver import relative_to
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.search.display_path import showable
from mcp_toolserver.text.desktop.commands import name
from mcp_toolserver.text.desktop.file_index_commands import (
    MOST_NAMED,
    index_status,
    is_unindexed,
    lookup,
    named,
    restricts_to_folder,
    status_of_nothing,
)

_MOST_BYTES = 4 << 20


async def query_index(
    helpers: DesktopHelpers, program: str, query: str, folder: str
) -> tuple[list[str], bool]:
    """Query the index; return the names, and whether there may be more.

    Raises:
        InvalidInput: the query has no meaning.
        Unavailable: the index cannot be queried, or leaves the folder's volume out.
    """
    command = lookup(program, query, folder)
    try:
        printed, whole = await helpers.output(
            command, most=_MOST_BYTES, empty_status=status_of_nothing(program)
        )
    except Unavailable:
        raise Unavailable(
            f"{name(program)} failed: there may be no index. Use glob_search or grep_search instead."
        ) from None
    names = named(program, printed, whole=whole)
    if not names and await _unindexed(helpers, program, folder):
        raise Unavailable(
            "Spotlight does not index the volume of this folder. Use glob_search or grep_search instead."
        )
    return names, not whole or len(names) >= MOST_NAMED


async def _unindexed(helpers: DesktopHelpers, program: str, folder: str) -> bool:
    """Whether the index is known to leave the volume of `folder` out; mdfind reports that as no result."""
    command = index_status(program)
    if not command:
        return False
    try:
        printed, _ = await helpers.output(command)
    except ToolError:
        return False
    return is_unindexed(printed, folder)


def in_folder(program: str, names: list[str], folder: str) -> list[str]:
    """Return those of `names` that are inside `folder`, without the folder itself.

    mdfind names nothing outside the folder, and may spell it otherwise: in the letter case and Unicode form
    that the volume stores.
    """
    places = [(relative_to(folder, path), path) for path in names]
    return [path for place, path in places if place != "." and (place or restricts_to_folder(program))]


def visible(workspace: Workspace, names: list[str], most: int, *, cut: bool) -> Indexed:
    """Return those of `names` that the call may see.

    An index can name files anywhere, links to other folders, and files that no longer exist.
    """
    there = [_visible_path(workspace, path) for path in names]
    found = list(dict.fromkeys(path for path in there if path))
    return Indexed(
        files=tuple(map(showable, found[:most])),
        withheld=there.count(None),
        more=cut or len(found) > most,
    )


def _visible_path(workspace: Workspace, absolute: str) -> str | None:
    """Return the workspace path; empty if the file is gone, None if it must not be shown."""
    try:
        path = workspace.canonical(absolute)
        if workspace.is_hidden(path):
            return None
        return "" if workspace.kind(path) == "missing" else path
    except ToolError:
        return None
