"""Information on the other tools, for the tools that find them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mcp_toolserver.capabilities.permissions import Permission


@dataclass(frozen=True, kw_only=True)
class ToolCard:
    """The description of a tool that can be called here."""

    name: str
    description: str
    aliases: tuple[str, ...]
    toolset: str
    permission: Permission
    """The permission that a call requires on this host."""
    schema: str
    """The JSON Schema of its arguments."""
    arguments: tuple[str, ...]
    """Names of the arguments."""
    core: bool
    """Whether every selection lists the tool."""


Catalogue = Callable[[], Sequence[ToolCard]]
"""Returns every tool that can be called here, listed or not, sorted by name."""
