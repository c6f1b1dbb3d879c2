"""Filters the locations that a language server returns to those the caller may see.

A server can name any file. Each location is resolved inside the roots like every path of a caller, and shown
with its line as it is on disk now.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

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


_File = tuple[str, list[str]]
"""A path and the lines of the file."""


@dataclass(kw_only=True)
class LocationView:
    """The visible locations of one response."""

    workspace: Workspace
    encoding: Encoding
    withheld: int = 0
    """Locations that cannot be shown: outside the roots, hidden or missing."""
    _files: dict[str, _File | None] = field(default_factory=dict[str, _File | None])

    async def visible(self, locations: Iterable[CodeLocation], limit: int) -> tuple[CodePlace, ...]:
        """Return the first `limit` locations that can be shown."""
        found: list[CodePlace] = []
        for location in locations:
            if len(found) == limit:
                break
            if (place := await self._place(location)) is None:
                self.withheld += 1
            else:
                found.append(place)
        return tuple(found)

    def is_hidden(self, uri: str) -> bool:
        """Whether a rule of the operator hides the file at `uri`."""
        path = to_path(uri)
        try:
            return path is not None and self.workspace.is_hidden(self.workspace.canonical(path))
        except ToolError:
            return False

    async def _place(self, location: CodeLocation) -> CodePlace | None:
        if location.uri not in self._files:
            self._files[location.uri] = await self._file(location.uri)
        file = self._files[location.uri]
        if file is None or not 0 <= location.line < len(file[1]):
            return None
        path, lines = file
        line = lines[location.line]
        return CodePlace(
            path=path,
            line=location.line + 1,
            character=to_index(line, location.units, self.encoding) + 1,
            text=_clip(line if location.text is None else location.text),
            label=_clip(location.label),
            depth=location.depth,
        )

    async def _file(self, uri: str) -> _File | None:
        if (absolute := to_path(uri)) is None:
            return None
        try:
            path = self.workspace.canonical(absolute)
            return path, code_lines((await read_text(path, self.workspace)).text)
        except ToolError:
            return None


def _clip(text: str) -> str:
    flat = text.strip()
    return flat if len(flat) <= MOST_TEXT else f"{flat[:MOST_TEXT]}…"
