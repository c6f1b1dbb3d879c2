"""Restrictions that a client puts on one call, on top of those of the server.

They only remove rights. Pure: paths are compared as text, and as their volume compares names.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from mcp_toolserver.capabilities.permissions import Capability, Permission
from mcp_toolserver.text.file_names import VolumePath, equivalent, folded, lies_in

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
"""Capabilities that show nothing of the workspace."""

_GUARDED = frozenset({Capability.FS_WRITE, Capability.SEND})
"""Capabilities that write, but check each file before they do, or write no files."""

Area = Mapping[str, bool]
"""Absolute paths of folders and files, and whether they are writable. The longest one that contains a path
decides; a path in none of them is not writable."""


@dataclass(frozen=True, kw_only=True)
class ClientRestrictions:
    """The restrictions of one call. The defaults are the strictest."""

    named: str
    """The name of the client's policy, for error messages."""
    ceiling: Permission = Permission.READ_ONLY
    network: bool = False
    areas: tuple[Area, ...] = ()
    """A path is writable only where each area allows it."""
    hides: bool = False
    """Whether the client hides files. The server cannot enforce that for one call, so no call reads files."""

    @property
    def source(self) -> str:
        """The client's policy, as the subject of an error message."""
        return f"the client's own sandbox policy ({self.named})"

    def resolved(self, resolve: Callable[[str], str]) -> "ClientRestrictions":
        """A copy in which `resolve` has replaced every path."""
        areas = (_resolved(area, resolve) for area in self.areas)
        return replace(self, areas=tuple(areas))

    def writes(self, path: str) -> bool:
        """Whether a file may be written."""
        return all(_allows(area, path) for area in self.areas)

    def protected_paths(self, root: str) -> tuple[str, ...]:
        """The paths within `root` that are not writable."""
        every = (path for area in self.areas for path, writable in area.items() if not writable)
        top = folded(root)
        return tuple(path for path in every if lies_in(top, folded(path)) and not self.writes(path))

    def removed_capabilities(
        self, permissions: Mapping[Capability, Permission], beyond: frozenset[Capability], *, held: bool
    ) -> dict[Capability, str]:
        """Which of the capabilities are not there for this call, and why.

        `beyond` are those that reach further than files; `held` says whether the sandbox of commands keeps
        the areas.
        """
        removed: dict[Capability, str] = {}
        if not held:
            why = f"{self.source} allows less to be written than the sandbox of commands can enforce"
            dear = (need for need, required in permissions.items() if required > Permission.READ_ONLY)
            removed |= dict.fromkeys((need for need in dear if need not in _GUARDED), why)
        if not self.network:
            removed |= dict.fromkeys(beyond, f"{self.source} allows this call no network")
        if self.hides:
            why = f"{self.source} hides files, which this server cannot enforce for a single call"
            removed |= dict.fromkeys(permissions.keys() - OWN_STATE, why)
        return removed


def stricter(one: ClientRestrictions, other: ClientRestrictions) -> ClientRestrictions:
    """The restrictions that allow only what both allow."""
    return ClientRestrictions(
        named=min(one, other, key=lambda restrictions: restrictions.ceiling).named,
        ceiling=min(one.ceiling, other.ceiling),
        network=one.network and other.network,
        areas=(*one.areas, *other.areas),
        hides=one.hides or other.hides,
    )


def _resolved(area: Area, resolve: Callable[[str], str]) -> Area:
    """Where two paths resolve to the same one, it is writable only if both are."""
    found: dict[str, bool] = {}
    for path, writable in area.items():
        real = resolve(path)
        found[real] = writable and found.get(real, True)
    return found


def _allows(area: Area, path: str) -> bool:
    around = [folder for folder, writable in area.items() if _contains(folder, path, writable=writable)]
    depth = max(map(_depth, around), default=0)
    # Where two are spellings of one folder, both have to allow it.
    return bool(around) and all(area[folder] for folder in around if _depth(folder) == depth)


def _depth(folder: str) -> int:
    return len(folder.rstrip("/").split("/"))


def _contains(folder: str, path: str, *, writable: bool) -> bool:
    """Whether `path` lies in `folder`, as its volume compares names; in doubt only where that refuses."""
    if not isinstance(path, VolumePath):
        return lies_in(folder, path)
    form = equivalent if writable else folded
    return lies_in(form(folder, path.comparison), form(path, path.comparison))
