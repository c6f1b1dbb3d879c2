"""Places that a language server names, as far as they may be seen.

It names them by address, and nothing keeps it from naming any file. Each is looked up beneath the roots like
every path of a caller, and shown with its line as it is on disk now.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from mcp_toolserver.capabilities.languages import CodePlace
from mcp_toolserver.errors import ToolError
from mcp_toolserver.runtime.fs import Workspace
from mcp_toolserver.runtime.lsp.documents import Pages
from mcp_toolserver.runtime.lsp.uris import to_path
from mcp_toolserver.text.code_positions import Encoding, to_index

MOST_TEXT = 300
"""Characters of a line that are shown."""


@dataclass(frozen=True, kw_only=True)
class Spot:
    """A place as a server names it."""

    uri: str
    line: int
    units: int
    label: str = ""
    text: str | None = None
    """What to say of it; None for its line."""
    depth: int = 0


@dataclass(kw_only=True)
class View:
    """The spots of one answer."""

    workspace: Workspace
    encoding: Encoding
    pages: Pages
    """Of all answers."""
    withheld: int = 0
    """Spots that cannot be shown: outside the roots, hidden, or no longer there."""
    _files: dict[str, tuple[str, list[str]] | None] = field(
        default_factory=dict[str, tuple[str, list[str]] | None]
    )

    async def shown(self, spots: Iterable[Spot], limit: int) -> tuple[CodePlace, ...]:
        """The first `limit` of them that can be shown."""
        found: list[CodePlace] = []
        for spot in spots:
            if len(found) == limit:
                break
            if (place := await self._place(spot)) is None:
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

    async def _place(self, spot: Spot) -> CodePlace | None:
        if spot.uri not in self._files:
            self._files[spot.uri] = await self._file(spot.uri)
        file = self._files[spot.uri]
        if file is None or not 0 <= spot.line < len(file[1]):
            return None
        path, lines = file
        line = lines[spot.line]
        return CodePlace(
            path=path,
            line=spot.line + 1,
            character=to_index(line, spot.units, self.encoding) + 1,
            text=_clipped(line if spot.text is None else spot.text),
            label=_clipped(spot.label),
            depth=spot.depth,
        )

    async def _file(self, uri: str) -> tuple[str, list[str]] | None:
        if (absolute := to_path(uri)) is None:
            return None
        try:
            path = self.workspace.canonical(absolute)
            return path, await self.pages.lines(uri, path, self.workspace.regular)
        except ToolError:
            return None


def _clipped(text: str) -> str:
    flat = text.strip()
    return flat if len(flat) <= MOST_TEXT else f"{flat[:MOST_TEXT]}…"
