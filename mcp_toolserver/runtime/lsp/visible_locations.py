"""Filters the locations that a language server returns to those the caller may see.

A server can name any file. Each location is resolved inside the roots like every path of a caller, and shown
with its line as it is on disk now.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from mcp_toolserver.capabilities.code import CodePlace
from mcp_toolserver.errors import ToolError
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.lsp.documents import read_text, to_path
from mcp_toolserver.text.code.positions import Encoding, code_lines, to_index

MOST_TEXT = 300
"""Characters of a line that are shown."""


@dataclass(frozen=True, kw_only=True)
class CodeLocation:
    """A location as the server returned it."""

    uri: str
    line: int
    units: int
    label: str = ""
    text: str | None = None
    """Text to show; None for the source line."""
    depth: int = 0


async def visible(
    locations: Iterable[CodeLocation], limit: int, workspace: Workspace, encoding: Encoding
) -> tuple[tuple[CodePlace, ...], int]:
    """Return the first `limit` locations that can be shown, and how many before them cannot, because they are
    outside the roots, hidden or missing."""
    places: list[CodePlace] = []
    withheld = 0
    files: dict[str, tuple[str, list[str]]] = {}
    for location in locations:
        if len(places) == limit:
            break
        if location.uri not in files:
            files[location.uri] = await _file(location.uri, workspace)
        path, lines = files[location.uri]
        if not 0 <= location.line < len(lines):
            withheld += 1
            continue
        line = lines[location.line]
        place = CodePlace(
            path=path,
            line=location.line + 1,
            character=to_index(line, location.units, encoding) + 1,
            text=_clip(line if location.text is None else location.text),
            label=_clip(location.label),
            depth=location.depth,
        )
        places.append(place)
    return tuple(places), withheld


async def _file(uri: str, workspace: Workspace) -> tuple[str, list[str]]:
    """Return the path and the lines of a file; no lines if it cannot be shown."""
    if (absolute := to_path(uri)) is None:
        return "", []
    try:
        path = workspace.canonical(absolute)
        return path, code_lines((await read_text(path, workspace)).text)
    except ToolError:
        return "", []


def _clip(text: str) -> str:
    flat = text.strip()
    return flat if len(flat) <= MOST_TEXT else f"{flat[:MOST_TEXT]}…"
