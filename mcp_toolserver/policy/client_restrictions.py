"""What a client confines one call to, beside what confines the server: the stricter of the two counts.

Nothing here gives a right; all of it takes some away. Pure: paths are compared by their letters.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from mcp_toolserver.capabilities.prices import Capability, Permission, Prices

OWN_STATE = frozenset(
    {
        Capability.CLOCK,
        Capability.ASK,
        Capability.TELL,
        Capability.TODOS,
        Capability.PREFERENCES,
        Capability.CATALOGUE,
        Capability.FETCH,
        Capability.SEND,
    }
)
"""What shows nothing of the workspace."""

_GUARDED = frozenset({Capability.FS_WRITE, Capability.SEND})
"""What writes, but not without asking for each file, or no files."""

Area = Mapping[str, bool]
"""Folders and files, absolute, and whether they may be written; the longest that a path lies in decides, and
what lies in none may not."""


@dataclass(frozen=True, kw_only=True)
class Narrowing:
    """The limits of one call. The defaults are the strictest."""

    named: str
    """The client's policy, as an error names it."""
    ceiling: Permission = Permission.READ_ONLY
    network: bool = False
    areas: tuple[Area, ...] = ()
    """Where may be written: only what each of them allows."""
    hides: bool = False
    """It keeps files from being read. One call can not be held to that, so none runs that reads any."""

    @property
    def whose(self) -> str:
        """The subject of a sentence that says what is not allowed."""
        return f"the client's own sandbox policy ({self.named})"

    def resolved(self, resolve: Callable[[str], str]) -> "Narrowing":
        """The same with every folder spelt as `resolve` has it."""
        areas = (_resolved(area, resolve) for area in self.areas)
        return replace(self, areas=tuple(areas))

    def writes(self, path: str) -> bool:
        """Whether a file may be written."""
        return all(_allows(area, path) for area in self.areas)

    def keeps(self, root: str) -> tuple[str, ...]:
        """What within `root` may not be written."""
        every = (path for area in self.areas for path, writable in area.items() if not writable)
        return tuple(path for path in every if lies_in(root, path) and not self.writes(path))

    def lost(self, prices: Prices, beyond: frozenset[Capability], *, held: bool) -> dict[Capability, str]:
        """Which of the capabilities are not there for this call, and why.

        `beyond` are those that reach further than files; `held` says whether the walls around commands keep
        the areas.
        """
        lost: dict[Capability, str] = {}
        if not held:
            why = f"{self.whose} lets less be written than the walls around commands can hold"
            dear = (need for need, price in prices.items() if price > Permission.READ_ONLY)
            lost |= dict.fromkeys((need for need in dear if need not in _GUARDED), why)
        if not self.network:
            lost |= dict.fromkeys(beyond, f"{self.whose} allows this call no network")
        if self.hides:
            why = f"{self.whose} hides files, which this server can not keep to in a single call"
            lost |= dict.fromkeys(prices.keys() - OWN_STATE, why)
        return lost


def lies_in(folder: str, path: str) -> bool:
    """Whether `path` is `folder`, or beneath it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def stricter(one: Narrowing, other: Narrowing) -> Narrowing:
    """What both allow."""
    return Narrowing(
        named=min(one, other, key=lambda narrowing: narrowing.ceiling).named,
        ceiling=min(one.ceiling, other.ceiling),
        network=one.network and other.network,
        areas=(*one.areas, *other.areas),
        hides=one.hides or other.hides,
    )


def _resolved(area: Area, resolve: Callable[[str], str]) -> Area:
    """Of two that turn out to be one, the one that may not be written counts."""
    found: dict[str, bool] = {}
    for path, writable in area.items():
        real = resolve(path)
        found[real] = writable and found.get(real, True)
    return found


def _allows(area: Area, path: str) -> bool:
    around = [folder for folder in area if lies_in(folder, path)]
    return bool(around) and area[max(around, key=len)]
