"""The rights of a call, which pass to what runs later on its behalf."""

from dataclasses import dataclass, replace

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.policy.client_restrictions import ClientRestrictions
from mcp_toolserver.policy.rules import Narrowing


@dataclass(frozen=True, kw_only=True)
class Rights:
    """What a call may do at most, besides the rules and the ceiling of the server."""

    narrowings: tuple[Narrowing, ...] = ()
    folders: tuple[str, ...] | None = None
    """The folders that the call may use, absolute; None for all roots of the server."""
    confined_to: ClientRestrictions | None = None
    """The restrictions of the client."""
    depth: int = 0
    """How many agents started each other down to the call."""

    @property
    def ceiling(self) -> Permission:
        """The lowest ceiling of the narrowings."""
        return min((one.ceiling for one in self.narrowings), default=Permission.DANGER_FULL_ACCESS)

    def narrowed(self, *narrowings: Narrowing) -> "Rights":
        """The same with fewer rights."""
        return replace(self, narrowings=(*self.narrowings, *narrowings))
