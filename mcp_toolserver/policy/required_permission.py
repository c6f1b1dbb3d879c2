"""How much a tool may change on this host."""

from collections.abc import Collection, Mapping
from typing import Protocol

from mcp_toolserver.capabilities.permissions import Capability, Permission

Permissions = Mapping[Capability, Permission]
"""The permission that each available capability requires on this host."""


class Demand(Protocol):
    """What a tool says that it needs."""

    @property
    def permission(self) -> Permission: ...
    @property
    def needs(self) -> frozenset[Capability]: ...


def missing(needs: Collection[Capability], permissions: Permissions) -> list[Capability]:
    """Which of `needs` are not available on this host."""
    return sorted([need for need in needs if need not in permissions], key=lambda need: need.label)


def level(tool: Demand, permissions: Permissions) -> Permission:
    """The permission a call of `tool` requires where its capabilities require `permissions`.

    It is the tool's own permission. A tool that declares no more than its capabilities require follows them,
    where this host requires less or more for them.
    """
    here = max(
        [permissions[need] for need in tool.needs if need in permissions], default=Permission.READ_ONLY
    )
    if Capability.OWN_CODE in tool.needs:
        # The sandbox of commands does not confine a function of the user's.
        return max(tool.permission, here)
    declared = max([need.permission for need in tool.needs], default=Permission.READ_ONLY)
    return here if tool.permission == declared else max(here, tool.permission)
