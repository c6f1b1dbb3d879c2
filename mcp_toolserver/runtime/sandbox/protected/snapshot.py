"""Which paths a command that may write must leave alone, and what they were before it ran."""

import errno
import os
import stat
import time
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from mcp_toolserver.runtime.sandbox.beneath_root import is_out_of_reach, opened
from mcp_toolserver.runtime.sandbox.fingerprint import Fingerprint, fingerprint
from mcp_toolserver.runtime.sandbox.git_folder import pointed_to, steering
from mcp_toolserver.runtime.sandbox.protected import GIT, protected_name
from mcp_toolserver.runtime.sandbox.survey import Kind, Survey, protected_in, survey
from mcp_toolserver.runtime.sandbox.walls import Walls

WRITING = "workspace-write"
"""The one mode in which there are walls and something to guard within the roots."""

MOST_PLACES = 400
"""Each costs a mount and a descriptor, and programs may have 1,024 of those."""

Role = Literal["whole", "repository", "steering"]
"""All of it is protected; it is the folder of a repository; it lies in one and makes git run programs."""


class Unprotectable(Exception):
    """The walls cannot be built around these roots. The text is for the operator and the model."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A protected path that exists."""

    root: str
    path: str
    """From the root; never empty."""
    role: Role

    @property
    def key(self) -> tuple[str, str]:
        """Which place it is, whatever lies there."""
        return self.root, self.path

    @property
    def absolute(self) -> str:
        return os.path.join(self.root, self.path)


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """What a place is before a command."""

    held: int
    """A descriptor of it; while it is open the file system gives its identity to nothing else."""
    is_folder: bool
    print: Fingerprint | None


@dataclass(frozen=True, kw_only=True)
class Before:
    """What was seen before a command."""

    walls: Walls
    roots: Mapping[str, int]
    """The roots, each open (O_PATH will do) since the server's start."""
    mounted: bool
    started: int = 0
    """When, in nanoseconds since the epoch."""
    surveys: Mapping[str, Survey] = field(default_factory=dict[str, Survey])
    known: frozenset[tuple[str, str]] = frozenset()
    """The keys of all places that there were."""
    guarded: Mapping[Place, Guarded] = field(default_factory=dict[Place, Guarded])
    """Those of them that commands could reach."""

    def is_pinned_only(self, place: Place) -> bool:
        """Whether commands may write in a place, though they cannot move it."""
        return place.role == "repository" and self.walls.git_writable

    def close(self) -> None:
        """Let go of the places. The roots stay open."""
        for guarded in self.guarded.values():
            os.close(guarded.held)


def survey_roots(
    walls: Walls, roots: Mapping[str, int], known: Mapping[str, Survey] | None = None
) -> Mapping[str, Survey]:
    """A search of every root. One made at start spares each command most of its own."""
    if walls.mode != WRITING:
        return {}
    known = known or {}
    return {root: survey(descriptor, known.get(root)) for root, descriptor in roots.items()}


def look(
    walls: Walls,
    roots: Mapping[str, int],
    known: Mapping[str, Survey] | None = None,
    *,
    mounted: bool = True,
) -> Before:
    """What is there to protect, before a command; close it when done.

    Unless it is `mounted` read-only, everything in it is compared afterwards.

    Raises:
        Unprotectable: a protected path is a symbolic link, or there are too many.
    """
    started = time.time_ns()
    surveys = survey_roots(walls, roots, known)
    places = places_in(walls, roots, surveys, thorough=not mounted)
    guarded: dict[Place, Guarded] = {}
    before = Before(
        walls=walls,
        roots=roots,
        mounted=mounted,
        started=started,
        surveys=surveys,
        known=frozenset(place.key for place in places),
        guarded=guarded,
    )
    try:
        for place in places:
            held = _hold(roots, place)
            if held >= 0:
                guarded[place] = _guard(before, place, held)
    except Unprotectable:
        before.close()
        raise
    return before


def _hold(roots: Mapping[str, int], place: Place) -> int:
    """A descriptor of `place`; -1 when it has gone, or commands cannot get there."""
    try:
        if os.geteuid() == 0 and is_out_of_reach(roots[place.root], place.path):
            return -1
        return opened(roots[place.root], place.path)
    except OSError as error:
        if error.errno == errno.EMFILE:
            raise _too_many(place) from None
        return -1


def _guard(before: Before, place: Place, held: int) -> Guarded:
    mode = os.fstat(held).st_mode
    problem = None
    if stat.S_ISLNK(mode):
        problem = Unprotectable(
            f"{place.absolute} is a symbolic link with a protected name, so it cannot be kept from commands. "
            "Put what it points to in its place, or remove it."
        )
    elif len(before.guarded) >= MOST_PLACES:
        problem = _too_many(place)
    if problem:
        os.close(held)
        raise problem
    is_folder = stat.S_ISDIR(mode)
    return Guarded(held=held, is_folder=is_folder, print=print_of(before, place, is_folder=is_folder))


def _too_many(place: Place) -> Unprotectable:
    return Unprotectable(
        f"{place.root} holds too many repositories and settings folders to protect all. "
        "Name a folder with fewer of them with --root."
    )


def print_of(before: Before, place: Place, *, is_folder: bool) -> Fingerprint | None:
    """What `place` is now; None when nothing is there.

    A mounted folder stays read-only whatever happens in it; a mounted file does not outlive its replacement.
    """
    contents = place.role != "repository" and not (before.mounted and is_folder)
    return fingerprint(before.roots[place.root], place.path, contents=contents)


def places_in(
    walls: Walls,
    roots: Mapping[str, int],
    surveys: Mapping[str, Survey],
    *,
    known: Container[tuple[str, str]] | None = None,
    thorough: bool = False,
) -> tuple[Place, ...]:
    """The protected paths of `surveys`, and those that lie in repositories or are pointed to by them.

    With `known`, roots and paths, only what is among them counts as pointed to. Where commands cannot write
    in repositories, only a `thorough` search looks into them.
    """
    found: dict[tuple[str, str], Place] = {}
    private = f"{os.path.realpath(walls.state)}/"
    inward = thorough or walls.git_writable
    for root, seen in surveys.items():
        finding = _Finding(roots=roots, root=root, known=known, inward=inward)
        for path, kind in protected_in(seen):
            if not os.path.join(root, path).startswith(private):
                for place in finding.named(path, kind):
                    found.setdefault(place.key, place)
    return tuple(found.values())


@dataclass(frozen=True, kw_only=True)
class _Finding:
    """What a protected name in `root` stands for."""

    roots: Mapping[str, int]
    root: str
    known: Container[tuple[str, str]] | None
    inward: bool

    def named(self, path: str, kind: Kind) -> Iterator[Place]:
        is_git = protected_name(path.rpartition("/")[2]) == GIT
        if is_git and kind == "folder":
            yield from self._repository(self.root, path)
            return
        yield Place(root=self.root, path=path, role="whole")
        if is_git and kind == "file":
            yield from self._pointed_to(path)

    def _pointed_to(self, path: str) -> Iterator[Place]:
        target = pointed_to(self.roots[self.root], self.root, path) or ""
        for root in self.roots:
            start = f"{root.rstrip('/')}/"
            inside = target.removeprefix(start)
            wanted = self.known is None or (root, inside) in self.known
            if target.startswith(start) and wanted and os.path.isdir(target):
                yield from self._repository(root, inside)

    def _repository(self, root: str, path: str) -> Iterator[Place]:
        yield Place(root=root, path=path, role="repository")
        if self.inward:
            for inner in steering(self.roots[root], path):
                yield Place(root=root, path=inner, role="steering")
