"""Watches the protected names of the roots: what was there, what the user made, what a command made.

One `Verifier` serves all commands of a server, so what one command makes is never taken for something that
was there before the next. A protected name that appears is set aside, unless no command can have made it:
because none was running, or because none of their threads has run since before the last scan, which did not
find it.
"""

import os
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from mcp_toolserver.runtime.sandbox.layers.spec import SandboxSpec
from mcp_toolserver.runtime.sandbox.protected import snapshot
from mcp_toolserver.runtime.sandbox.protected.dependencies import content, lies_in_package
from mcp_toolserver.runtime.sandbox.protected.folder_scan import FolderScan
from mcp_toolserver.runtime.sandbox.protected.git_dir import (
    CONFIGS,
    LONGEST_CONFIG,
    REBASE_TODO,
    is_harmless,
    linked_repository,
    put_back,
    read_text,
)
from mcp_toolserver.runtime.sandbox.protected.names import GIT, protected_name
from mcp_toolserver.runtime.sandbox.protected.open_nofollow import is_out_of_reach, opened
from mcp_toolserver.runtime.sandbox.protected.quarantine import bytes_of, is_aside, new_name, set_aside
from mcp_toolserver.runtime.sandbox.protected.snapshot import (
    LONGEST_SHOWN,
    ProtectedPath,
    Role,
    bounded,
    protected_paths_in,
    refuse_too_many,
    shortened,
)
from mcp_toolserver.runtime.sandbox.protected.thread_activity import Activity, has_run
from mcp_toolserver.text.file_names import lies_in

SECONDS = 1.0
"""Between two checks while a command runs, unless a check takes longer than half of that."""

SECONDS_AFTER_A_FIND = 0.1
"""The same after a check that set something aside: who makes it again is stopped soon."""

AGAIN_SECONDS = 30.0
"""How soon after a place was set aside another command of the session is stopped that makes it again. Later
it may be a second installation of what brings such a name along."""

LONGEST_REBASE = 600.0
"""Seconds that a command may run a rebase which executes commands. The user's own `git rebase --continue`
would execute what is left of it."""

MOST_REMEMBERED = 4_096
"""Places that sessions made."""

_REASONS: Mapping[Role, str] = {
    "whole": "which programs act upon unasked",
    "repository": "which programs act upon unasked",
    "steers_git": "which makes git run programs, write elsewhere or show other commits",
}

Key = tuple[str, str]
"""Root and path of a place."""

Identity = tuple[int, int] | None
"""Device and inode; None when it has gone."""


@dataclass(kw_only=True, eq=False)
class Watched:
    """A running command."""

    folders: frozenset[str]
    """The roots, or the parts of them, that it can write in."""
    session: str
    """Its name; empty if it belongs to none."""
    mounted: bool
    """Whether protected places are mounted read-only for it."""
    sample: Callable[[], Activity]
    """Tells what its processes have done so far."""
    covered: Mapping[Key, Identity]
    """What its mounts protect."""
    most_folders: int
    """With more in its roots it is stopped."""
    before: Activity
    """What its processes had done when the last check began."""
    began: float
    """By the monotonic clock."""
    has_ended: bool = False
    notes: list[str] = field(default_factory=list[str])
    """Not reported yet."""
    noted: set[Key] = field(default_factory=set[Key])
    moved: set[Key] = field(default_factory=set[Key])
    """What was set aside while it ran."""
    uncovered: str = ""
    """Why it has to be stopped; empty as long as it need not be."""

    def writes_in(self, root: str) -> bool:
        """Whether it can write in a part of the root."""
        return any(lies_in(root, folder) for folder in self.folders)


class Verifier:
    """Verify the roots of `sandbox`, each open in `roots`."""

    def __init__(
        self,
        sandbox: SandboxSpec,
        roots: Mapping[str, int],
        scans: Mapping[str, FolderScan],
        *,
        mounted: bool = True,
    ) -> None:
        """What the first `scans` of the roots found was there before any command.

        Unless protected places are `mounted` read-only for commands, nothing in them is taken for granted.
        """
        self._sandbox = sandbox
        self._roots = roots
        self._mounted = mounted
        self._scans = scans
        self._accepted: dict[Key, Identity] = {}
        """What was there before any command, or is the user's, as it was then."""
        self._configs: dict[Key, str] = {}
        """What was in the configuration of its repositories."""
        self._by_content = set[Key]()
        """What commands made that they may make, and what lies among installed packages: no mount keeps them
        from it, every check looks at it."""
        self._packaged: dict[Key, str] = {}
        """What lay among installed packages."""
        self._tracked = set[str]()
        """Folders of packages in which git tracked a file once: commands can make it forget that."""
        self._unmoved: dict[Key, Identity] = {}
        """What a command made and could not be set aside."""
        self._made: dict[tuple[str, Key], float] = {}
        """When what was set aside last while commands of a session ran, by session; the oldest first."""
        self._room: int | None = None
        """Bytes that the quarantine may still take; None when they have to be counted again."""
        self._running: set[Watched] = set()
        self.due = 0.0
        """When the next check has to be while commands run, by the monotonic clock."""
        for place in self.places():
            self._accept(place)

    @property
    def is_busy(self) -> bool:
        """Whether commands are running."""
        return bool(self._running)

    def places(self) -> tuple[ProtectedPath, ...]:
        """The protected paths, as of the last check."""
        found = {root: scan.found() for root, scan in self._scans.items()}
        places = protected_paths_in(
            self._sandbox, self._roots, found, self._tracked, thorough=not self._mounted
        )
        if os.geteuid() != 0:
            return places
        # Commands of root have none of its powers. What they cannot reach they cannot have made; what takes
        # its place later they can.
        return tuple(place for place in places if not self._is_out_of_reach(place))

    def _accept(self, place: ProtectedPath) -> None:
        """Take what is there for the user's."""
        if lies_in_package(*place.key, self._tracked) and (
            held := content(self._roots[place.root], place.path)
        ):
            self._packaged[place.key] = held
            self._by_content.add(place.key)
            return
        self._by_content.discard(place.key)
        self._accepted[place.key] = self._identity(place)
        if place.role == "steers_git" and _name(place) in CONFIGS:
            self._configs[place.key] = read_text(self._roots[place.root], place.path, LONGEST_CONFIG) or ""

    def begin(
        self, folders: Iterable[str], sample: Callable[[], Activity], session: str = ""
    ) -> tuple[Watched, tuple[ProtectedPath, ...]]:
        """Check, and watch a command of `session` from now on that can write in `folders`. It must not have
        started yet.

        Raises:
            TooMany: there are more folders than can be checked for every command.
        """
        self.check()
        reached = frozenset(folders)
        count = self._count(reached)
        refuse_too_many(count)
        present = self.places()
        self._accept_what_is_settled(present)
        places = tuple(place for place in present if place.key in self._accepted and _reaches(reached, place))
        watched = Watched(
            folders=reached,
            session=session,
            mounted=self._mounted,
            sample=sample,
            covered={place.key: self._identity(place) for place in places},
            most_folders=max(count, snapshot.MOST_FOLDERS),
            before=sample(),
            began=time.monotonic(),
        )
        self._running.add(watched)
        return watched, places

    def _accept_what_is_settled(self, places: Iterable[ProtectedPath]) -> None:
        """Accept what commands made and no running one can change any more: where git is writable only the
        repository of a root, so that commands can move and remove what else they made."""
        for place in places:
            stays = (self._sandbox.git_writable and not _is_main(place)) or place.key in self._packaged
            if place.key not in self._by_content or stays:
                continue
            writers = (one for one in self._running if one.writes_in(place.root))
            identity = self._identity(place)
            if all(one.covered.get(place.key) == identity for one in writers):
                self._accept(place)

    def _count(self, folders: Iterable[str]) -> int:
        """How many folders there are in `folders`, which lie in roots."""
        return sum(
            scan.count(folder.removeprefix(root).strip("/"))
            for root, scan in self._scans.items()
            for folder in folders
            if lies_in(root, folder)
        )

    def end(self, watched: Watched) -> tuple[str, ...]:
        """Check, stop watching the command, and return its notes. Call it once all its processes are gone."""
        watched.before = None
        watched.has_ended = True
        self.check()
        self._running.discard(watched)
        self._room = None
        return self.take_notes(watched)

    def take_notes(self, watched: Watched) -> tuple[str, ...]:
        """Take the new notes on a command, in sentences."""
        notes = bounded(watched.notes)
        watched.notes.clear()
        return notes

    def check(self) -> None:
        """Scan the roots, set aside what commands made, and find the commands that have to be stopped."""
        began, found = time.monotonic(), False
        # Taken before the scan: what runs during it counts both for this check and for the next.
        now = {watched: watched.sample() for watched in self._running}
        for scan in self._scans.values():
            scan.update(make_readable=bool(self._running))
        active = [watched for watched in self._running if has_run(watched.before, watched.sample())]
        places = self.places()
        keys = {place.key for place in places}
        self._accepted = {key: identity for key, identity in self._accepted.items() if key in keys}
        self._by_content &= keys
        for place in places:
            # No mount keeps a command from what somebody has put in the place of a mounted file.
            is_mounted = place.role == "steers_git" and place.key in self._accepted
            if is_mounted and self._accepted[place.key] != self._identity(place):
                del self._accepted[place.key]
        fresh = sorted((place for place in places if place.key not in self._accepted), key=_by_parts)
        for place in _outermost(fresh):
            found |= self._judge(place, [one for one in active if one.writes_in(place.root)])
        present = self.places() if now else ()
        for watched, before in now.items():
            watched.before = before
            if sum(map(len, self._scans.values())) > snapshot.MOST_FOLDERS:
                self._stop_if_too_many(watched)
            if watched.mounted and not watched.uncovered:
                watched.uncovered = self._uncovered(watched, present)
        ended = time.monotonic()
        wait = SECONDS_AFTER_A_FIND if found else SECONDS
        self.due = ended + max(wait, 2 * (ended - began))

    def _judge(self, place: ProtectedPath, suspects: list[Watched]) -> bool:
        """Accept what no command can have made, and set aside what one may have made, again and again where
        that fails. Returns whether it was to be set aside.

        What commands may make is judged again by every check, because a command could change it.
        """
        writers = [one for one in self._running if one.writes_in(place.root)]
        is_known = place.key in self._by_content
        if place.path.endswith(REBASE_TODO) and (suspects or is_known):
            # A rebase with --exec may be under way.
            self._by_content.add(place.key)
            if not any(map(_may_leave, writers)):
                return False
            suspects = writers
        elif (writers or is_known) and self._is_allowed(place):
            self._by_content.add(place.key)
            return False
        unmoved = self._unmoved.get(place.key)
        if suspects or (unmoved is not None and unmoved == self._identity(place)):
            self._stop_who_made_it_before(place, suspects)
            self._remove(place, suspects)
            return True
        self._accept(place)
        return False

    def _stop_who_made_it_before(self, place: ProtectedPath, suspects: list[Watched]) -> None:
        """Stop the commands from which the place was set aside before: what is made again and again is there
        for programs to find most of the time."""
        now = time.monotonic()
        for watched in suspects:
            made = self._made.get((watched.session, place.key)) if watched.session else None
            if place.key in watched.moved or (made is not None and now - made < AGAIN_SECONDS):
                watched.uncovered = watched.uncovered or (
                    f"{self._shown(place)} was made again after it had been moved away; programs act upon it "
                    "unasked. Leave it out, or ask the user to make it"
                )

    def _stop_if_too_many(self, watched: Watched) -> None:
        if not watched.uncovered and (count := self._count(watched.folders)) > watched.most_folders:
            watched.uncovered = (
                f"its roots hold {count:,} folders, and protected names can be verified in at most "
                f"{snapshot.MOST_FOLDERS:,}. Until there are fewer, commands may remove folders and not make "
                "any"
            )

    def _is_allowed(self, place: ProtectedPath) -> bool:
        """Whether commands may make such a place with what it holds, or the server may while commands run."""
        if place.key in self._packaged and lies_in_package(*place.key, self._tracked):
            return content(self._roots[place.root], place.path) == self._packaged[place.key]
        if place.role == "repository":
            return self._sandbox.git_writable
        if place.role == "steers_git" and self._sandbox.git_writable:
            known = self._configs.get(place.key, "")
            return is_harmless(self._roots[place.root], place.path, self._roots, known)
        return self._is_work_tree(place)

    def _is_work_tree(self, place: ProtectedPath) -> bool:
        """Whether it is part of a linked work tree of a repository that commands may make or that was there
        before. No command can make the other part of it where it cannot write in that repository."""
        root, repository = self._roots[place.root], None
        if place.role == "steers_git":
            if _name(place) == "commondir" and is_harmless(root, place.path, self._roots):
                repository = place.path.rpartition("/worktrees/")[0]
        elif _name(place) == GIT:
            repository = linked_repository(root, place.root, place.path)
        return repository is not None and (
            self._sandbox.git_writable or (place.root, repository) in self._accepted
        )

    def _remove(self, place: ProtectedPath, suspects: list[Watched]) -> None:
        made, appeared = place, "appeared"
        if place.role == "repository" and protected_name(_name(place)) != GIT:
            # Without this file it is an ordinary folder, which may hold work.
            made, appeared = replace(place, path=f"{place.path}/HEAD"), "made its folder a git repository"
        reason = _REASONS["whole" if protected_name(_name(place)) else place.role]
        shown = f"While the command ran, {self._shown(made)} {appeared}, {reason}."
        try:
            where = self._set_aside(made)
        except OSError as error:
            self._unmoved[place.key] = self._identity(place)
            note = (
                f"{shown} It could not be moved away ({error.strerror}): the user should remove it before "
                "opening the folder."
            )
        else:
            there = where
            if not where.startswith("/"):
                there = os.path.join(place.root, where)
                self._accepted[place.root, where] = None
            restore = f"mv -- {shlex.quote(there)} {shlex.quote(made.absolute)}"
            if len(restore) > 3 * LONGEST_SHOWN:
                restore = f"move it back from {shortened(there)}"
            note = f"{shown} It was moved away. If the user made it, they can restore it: {restore}"
            self._remember(place, suspects)
        for watched in suspects:
            # What cannot be moved is found again by every check.
            if place.key not in watched.noted or "could not" not in note:
                watched.noted.add(place.key)
                watched.notes.append(note)

    def _set_aside(self, place: ProtectedPath) -> str:
        quarantine = os.path.join(self._sandbox.state, "quarantine")
        if self._room is None:
            limit = self._sandbox.quarantine_bytes
            self._room = limit - bytes_of(quarantine, limit)
        root = self._roots[place.root]
        where, size = set_aside(root, place.path, os.path.join(quarantine, new_name()), self._room)
        self._room -= size
        put_back(root, place.path, os.path.join(place.root, where), self._configs.get(place.key))
        return where

    def _remember(self, place: ProtectedPath, suspects: list[Watched]) -> None:
        for watched in suspects:
            watched.moved.add(place.key)
            self._made.pop((watched.session, place.key), None)
            self._made[watched.session, place.key] = time.monotonic()
        while len(self._made) > MOST_REMEMBERED:
            del self._made[next(iter(self._made))]

    def _uncovered(self, watched: Watched, places: Iterable[ProtectedPath]) -> str:
        for place in places:
            if not _reaches(watched.folders, place) or place.key not in self._accepted:
                continue
            if (place.role == "repository" and self._sandbox.git_writable) or is_aside(_name(place)):
                continue
            if watched.covered.get(place.key) != self._identity(place):
                return (
                    f"{self._shown(place)} was made or replaced while the command ran, by somebody else, and "
                    "nothing keeps this command from changing it. Start it again: it will be protected then"
                )
        return ""

    def _is_out_of_reach(self, place: ProtectedPath) -> bool:
        try:
            return is_out_of_reach(self._roots[place.root], place.path)
        except OSError:
            return False

    def _identity(self, place: ProtectedPath) -> Identity:
        try:
            descriptor = opened(self._roots[place.root], place.path)
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            return status.st_dev, status.st_ino
        finally:
            os.close(descriptor)

    def _shown(self, place: ProtectedPath) -> str:
        return shortened(place.path if len(self._roots) == 1 else place.absolute)


def _may_leave(watched: Watched) -> bool:
    """Whether what it does meanwhile may lie there for long."""
    return watched.has_ended or time.monotonic() - watched.began > LONGEST_REBASE


def _by_parts(place: ProtectedPath) -> tuple[str, list[str]]:
    """Sorts what lies in a place directly after it."""
    return place.root, place.path.split("/")


def _is_main(place: ProtectedPath) -> bool:
    return place.path.partition("/")[0] == GIT and "/worktrees/" not in place.path


def _reaches(folders: Iterable[str], place: ProtectedPath) -> bool:
    return any(lies_in(folder, place.absolute) or lies_in(place.absolute, folder) for folder in folders)


def _name(place: ProtectedPath) -> str:
    return place.path.rpartition("/")[2]


def _outermost(places: Iterable[ProtectedPath]) -> Iterator[ProtectedPath]:
    """Those of sorted places that lie in none of the others, but for repositories: these are judged alone."""
    above: ProtectedPath | None = None
    for place in places:
        inside = above and place.root == above.root and place.path.startswith(f"{above.path}/")
        if not inside:
            above = None if place.role == "repository" else place
        if not inside or above is None:
            yield place
