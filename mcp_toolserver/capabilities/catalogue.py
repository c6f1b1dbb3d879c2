"""What a tool may know of the other tools."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mcp_toolserver.capabilities.permissions import Permission


@dataclass(frozen=True, kw_only=True)
class ToolCard:
    """A tool that can be called here, as another tool sees it."""

    name: str
    description: str
    aliases: tuple[str, ...]
    toolset: str
    permission: Permission
    """What a call of it needs on this host."""
    schema: str
    """The JSON Schema of its arguments."""
    arguments: tuple[str, ...]
    """Their names."""
    core: bool
    """One of the few that every selection lists."""


Catalogue = Callable[[], Sequence[ToolCard]]
"""Every tool that can be called here, by name, whether it is listed or not."""
