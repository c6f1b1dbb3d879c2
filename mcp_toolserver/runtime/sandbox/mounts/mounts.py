"""The view of the file system that a command gets: what is mounted where.

The whole machine read-only; over it a /dev, a /proc and scratch folders of the command's own, and emptiness
where secrets and sockets are; then the roots. In a root that may be written, protected paths are read-only,
and every folder between the root and a mount within it is mounted over itself: a mount point cannot be
renamed, so no mount can be moved aside together with the folder it lies in.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from mcp_toolserver.runtime.sandbox.guard import WRITING, Before, Unprotectable
from mcp_toolserver.runtime.sandbox.masks import masked

SCRATCH = {"/tmp": 1 << 30, "/var/tmp": 1 << 28, "/dev/shm": 1 << 28}  # noqa: S108  # the command's own
"""Folders that start empty and end with the command, with their sizes in bytes."""

RESOLVER = "/etc/resolv.conf"
"""Names cannot be looked up without it, and it may point into a masked folder."""

Mount = Literal[
    "machine", "devices", "processes", "scratch", "empty folder", "empty file", "read-only", "writable"
]

Mounts = Mapping[str, Mount]
"""By absolute path without links."""

_BARE = ("scratch", "empty folder")


def mounts(before: Before) -> Mounts:
    """What is mounted for a command.

    Raises:
        Unprotectable: a root lies where a command gets its own devices or processes.
    """
    made = _own()
    for root in before.roots:
        if root in ("/dev", "/proc") or _containing(made, root) in ("devices", "processes"):
            raise Unprotectable(
                f"{root} cannot be a root of confined commands. Name another folder with --root."
            )
    kind: Mount = "writable" if before.walls.mode == WRITING else "read-only"
    made |= dict.fromkeys(before.roots, kind)
    _cover(made, before)
    if kind == "writable":
        _pin(made, before.roots)
    return made


def in_order(made: Mounts) -> Iterator[tuple[str, Mount]]:
    """Each after what it lies in."""
    yield from sorted(made.items(), key=lambda mount: mount[0].rstrip("/").split("/"))


def scratch_folder(made: Mounts) -> str:
    """Where temporary files go."""
    return next((folder for folder in SCRATCH if made.get(folder) == "scratch"), "/dev")


def _own() -> dict[str, Mount]:
    made: dict[str, Mount] = {"/": "machine", "/dev": "devices", "/proc": "processes"}
    for folder in SCRATCH:
        # A mount point cannot be made on a read-only machine; /dev/shm is made with /dev.
        is_folder = os.path.isdir(folder) and os.path.realpath(folder) == folder
        if is_folder or folder == "/dev/shm":  # noqa: S108
            made[folder] = "scratch"
    return made


def _cover(made: dict[str, Mount], before: Before) -> None:
    """Add what hides and what protects, but not where nothing can be seen anyway."""
    for path, is_folder in sorted(masked(before.walls)):
        if path not in before.roots and _containing(made, path) not in _BARE:
            made[path] = "empty folder" if is_folder else "empty file"
    for place in before.guarded:
        if _containing(made, place.absolute) not in _BARE:
            made.setdefault(place.absolute, "writable" if before.is_pinned_only(place) else "read-only")
    resolver = os.path.realpath(RESOLVER)
    if before.walls.network and _containing(made, resolver) in _BARE and os.path.isfile(resolver):
        made[resolver] = "read-only"


def _pin(made: dict[str, Mount], roots: Iterable[str]) -> None:
    for root in roots:
        start = f"{root.rstrip('/')}/"
        for path in [path for path in made if path.startswith(start) and made[path] != "scratch"]:
            _pin_way(made, start, path)


def _pin_way(made: dict[str, Mount], start: str, path: str) -> None:
    """Mount the folders between `start` and `path` over themselves, down to what is not writable anyway."""
    way = start.rstrip("/")
    for folder in path.removeprefix(start).split("/")[:-1]:
        way = f"{way}/{folder}"
        if made.setdefault(way, "writable") != "writable":
            return


def _containing(made: Mounts, path: str) -> Mount | None:
    """What holds `path`: the nearest mount above it."""
    while path != "/":
        path = os.path.dirname(path)
        if path in made:
            return made[path]
    return None
