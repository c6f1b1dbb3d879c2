"""How much a tool may change on this host."""

from collections.abc import Collection
from typing import Protocol

from mcp_toolserver.capabilities.prices import PRICES, Capability, Permission, Prices


class Demand(Protocol):
    """What a tool says that it needs."""

    @property
    def permission(self) -> Permission: ...
    @property
    def needs(self) -> frozenset[Capability]: ...


def missing(needs: Collection[Capability], prices: Prices) -> list[Capability]:
    """What of `needs` this host does not have at any price."""
    return sorted((need for need in needs if need not in prices), key=lambda need: need.value)


def level(tool: Demand, prices: Prices) -> Permission:
    """The permission a call of `tool` needs where capabilities cost `prices`.

    It is the tool's own permission, except that a tool which is dear only for what it needs gets cheaper, or
    dearer, with its needs.
    """
    if Capability.OWN_CODE in tool.needs:
        # Walls around commands do not stand around a function of the user's.
        return max((tool.permission, *(prices[need] for need in tool.needs if need in prices)))
    here = max((prices[need] for need in tool.needs if need in prices), default=Permission.READ_ONLY)
    declared = max((PRICES[need] for need in tool.needs), default=Permission.READ_ONLY)
    return here if tool.permission == declared else max(here, tool.permission)
