"""Snapshots of the protected paths, taken before a command that may write, and what changed since.

A fingerprint has identity and content, never the modification time, which any program can set. That of a
folder has its entries with their status change times, which no program can set. Nothing is restored, because
the user may have made a change.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from mcp_toolserver.runtime.files.volume import escapes_mounts
from mcp_toolserver.runtime.sandbox.layers.spec import SandboxSpec
from mcp_toolserver.runtime.sandbox.protected.dependencies import is_settings_folder, lies_in_package
from mcp_toolserver.runtime.sandbox.protected.folder_scan import FolderScan, Kind, below
from mcp_toolserver.runtime.sandbox.protected.git_dir import steering
from mcp_toolserver.runtime.sandbox.protected.names import GIT, protected_name
from mcp_toolserver.runtime.sandbox.protected.open_nofollow import is_out_of_reach, opened
from mcp_toolserver.runtime.sandbox.protected.unprotectable import Unprotectable
from mcp_toolserver.text.file_names import lies_in

WRITING = "workspace-write"
"""The one mode in which there is a sandbox and something to guard within the roots."""

MOST_PLACES = 400
"""Each costs a mount and a descriptor, and programs may have 1,024 of those."""

MOST_FOLDERS = 200_000
"""With more, each check would take half a second or longer. A command that makes more is stopped; with twice
as many none is started."""

LARGEST_READ = 1 << 20
"""Bytes of a file that is identified by its content; a larger one is by its size and status change time."""

Fingerprint = tuple[object, ...]
"""To be compared, nothing else."""

Role = Literal["whole", "repository", "steers_git"]
"""All of it is protected; it is the folder of a repository; it lies in one and makes git run programs or act
elsewhere."""


class TooMany(Unprotectable):
    """There are more folders or protected places than commands can be kept from."""


@dataclass(frozen=True, kw_only=True)
class ProtectedPath:
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
class ProtectedState:
    """The state of a protected path before a command."""

    descriptor: int
    """A descriptor of it; while it is open the file system gives its identity to nothing else."""
    is_folder: bool
    print: Fingerprint | None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The protected paths before a command."""

    sandbox: SandboxSpec
    roots: Mapping[str, int]
    """The roots, each open (O_PATH will do) since the server's start."""
    mounted: bool
    protected: Mapping[ProtectedPath, ProtectedState] = field(
        default_factory=dict[ProtectedPath, ProtectedState]
    )
    """The protected places that commands could reach."""
    closed: set[ProtectedPath] = field(default_factory=set[ProtectedPath])
    """Repositories in which something cannot be protected alone."""

    def is_pinned_only(self, place: ProtectedPath) -> bool:
        """Whether commands may write in a place, though they cannot move it."""
        return place.role == "repository" and self.sandbox.git_writable and place not in self.closed

    def close(self) -> None:
        """Close the handles of the paths. The roots stay open."""
        for protected in self.protected.values():
            os.close(protected.descriptor)


Found = Mapping[str, Iterable[tuple[str, Kind]]]
"""What scans found, by root."""


def found_now(sandbox: SandboxSpec, roots: Mapping[str, int]) -> Found:
    """What a scan of every root finds; nothing where commands cannot write.

    Raises:
        TooMany: there are more folders than can be verified.
    """
    if sandbox.mode != WRITING:
        return {}
    scans = {root: FolderScan(descriptor, sandbox.writable_names) for root, descriptor in roots.items()}
    refuse_too_many(sum(map(len, scans.values())))
    return {root: scan.found() for root, scan in scans.items()}


def refuse_too_many(count: int) -> None:
    """Raises: TooMany: so many folders are more than can be verified for every command."""
    if count > 2 * MOST_FOLDERS:
        raise TooMany(
            f"The roots hold {count:,} folders, and protected names can be verified in at most "
            f"{MOST_FOLDERS:,}. Ask the user to remove some outside of this server (commands run again at "
            "once), or the operator to name folders with fewer of them with --root."
        )


def take_snapshot(
    sandbox: SandboxSpec, roots: Mapping[str, int], places: Iterable[ProtectedPath], *, mounted: bool = True
) -> Snapshot:
    """What the protected `places` are before a command; close it when done.

    Unless they are `mounted` read-only, everything in them is compared afterwards.

    Raises:
        Unprotectable: one of them is a symbolic link, or there are too many.
    """
    protected: dict[ProtectedPath, ProtectedState] = {}
    before = Snapshot(sandbox=sandbox, roots=roots, mounted=mounted, protected=protected)
    places = tuple(places)
    repositories = [place for place in places if place.role == "repository"]
    if len(places) > MOST_PLACES and mounted and sandbox.git_writable:
        # Each repository as a whole costs fewer.
        before.closed.update(repositories)
        places = tuple(place for place in places if place.role != "steers_git")
    try:
        for place in places:
            descriptor = _open(roots, place)
            if descriptor < 0:
                continue
            try:
                protected[place] = _record(before, place, descriptor)
            except Unprotectable as error:
                around = [one for one in repositories if lies_in(one.absolute, place.absolute)]
                if place.role != "steers_git" or not around or isinstance(error, TooMany):
                    raise
                before.closed.update(around)
    except Unprotectable:
        before.close()
        raise
    return before


def _open(roots: Mapping[str, int], place: ProtectedPath) -> int:
    """A descriptor of `place`; -1 when it has gone, or commands cannot get there."""
    try:
        if os.geteuid() == 0 and is_out_of_reach(roots[place.root], place.path):
            return -1
        return opened(roots[place.root], place.path)
    except OSError as error:
        if error.errno == errno.EMFILE:
            raise _too_many(place) from None
        return -1


def _record(before: Snapshot, place: ProtectedPath, descriptor: int) -> ProtectedState:
    mode = os.fstat(descriptor).st_mode
    problem = None
    if stat.S_ISLNK(mode):
        problem = Unprotectable(
            f"{place.absolute} is a symbolic link with a protected name, so it cannot be kept from commands. "
            "Put what it points to in its place, or remove it."
        )
    elif before.mounted and not stat.S_ISDIR(mode) and _escapes_mounts(before.roots[place.root], place.path):
        problem = Unprotectable(
            f"{place.absolute} lies on a volume where commands can reach it by other spellings of its name, "
            "so it cannot be kept from them. Use --permission-mode read-only, move the root to another "
            "volume, or remove the file."
        )
    elif len(before.protected) >= MOST_PLACES:
        problem = _too_many(place)
    if problem:
        os.close(descriptor)
        raise problem
    is_folder = stat.S_ISDIR(mode)
    return ProtectedState(
        descriptor=descriptor, is_folder=is_folder, print=fingerprint_of(before, place, is_folder=is_folder)
    )


def _escapes_mounts(root: int, path: str) -> bool:
    parent = path.rpartition("/")[0]
    try:
        folder = opened(root, parent) if parent else os.dup(root)
    except OSError:
        return True
    try:
        return escapes_mounts(folder)
    finally:
        os.close(folder)


def _too_many(place: ProtectedPath) -> Unprotectable:
    return TooMany(
        f"{place.root} holds too many repositories and settings folders to protect all; {place.path} is one. "
        "Ask the user to remove some outside of this server (commands run again at once), or the operator to "
        "name a folder with fewer of them with --root."
    )


def fingerprint_of(before: Snapshot, place: ProtectedPath, *, is_folder: bool) -> Fingerprint | None:
    """What `place` is now; None when nothing is there.

    A mounted folder stays read-only whatever happens in it; a mounted file does not outlive its replacement.
    """
    contents = place.role != "repository" and not (before.mounted and is_folder)
    return fingerprint(before.roots[place.root], place.path, contents=contents)


def protected_paths_in(
    sandbox: SandboxSpec,
    roots: Mapping[str, int],
    found: Found,
    tracked: set[str],
    *,
    thorough: bool = False,
) -> tuple[ProtectedPath, ...]:
    """The protected places among what was `found`, and those in repositories.

    Where commands cannot write in repositories, only a `thorough` search looks into them. For `tracked`
    see `lies_in_package`.
    """
    places: dict[tuple[str, str], ProtectedPath] = {}
    private = f"{os.path.realpath(sandbox.state)}/"
    inward = thorough or sandbox.git_writable
    for root, entries in found.items():
        for path, kind in entries:
            spared = is_settings_folder(path) and lies_in_package(root, path, tracked)
            if not spared and not f"{os.path.join(root, path)}/".startswith(private):
                is_git = kind == "folder" and protected_name(path.rpartition("/")[2]) == GIT
                is_repository = is_git or kind == "repository"
                # A root as a whole can be neither protected nor moved.
                role: Role = "repository" if is_repository and path else "whole"
                place = ProtectedPath(root=root, path=path or "HEAD", role=role)
                places.setdefault(place.key, place)
                if is_repository and (inward or not path):
                    for inner in steering(roots[root], path):
                        place = ProtectedPath(root=root, path=inner, role="steers_git")
                        places.setdefault(place.key, place)
    return tuple(places.values())


def fingerprint(root: int, path: str, *, contents: bool = True) -> Fingerprint | None:
    """Of `path` below the folder open as `root`; None when nothing is there.

    Without `contents`, whether it is the same folder or file at all.
    """
    try:
        status = os.stat(path, dir_fd=root, follow_symlinks=False)
        identity = (stat.S_IFMT(status.st_mode), status.st_ino)
        if not contents:
            return identity
        if stat.S_ISLNK(status.st_mode):
            return (*identity, os.readlink(path, dir_fd=root))
        if stat.S_ISDIR(status.st_mode):
            return (*identity, status.st_mode, *_entries(root, path))
        if stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST_READ:
            return (*identity, status.st_mode, _digest(root, path))
    except OSError:
        return None
    except RecursionError:
        # Folders nested deeper than any that were there before count as a change.
        return ("nested too deep",)
    return (*identity, *_stamp(status))


def _digest(root: int, path: str) -> object:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=root)
    except PermissionError:
        return "unreadable"
    try:
        return hashlib.sha256(os.read(file, LARGEST_READ)).digest()
    finally:
        os.close(file)


def _entries(root: int, path: str) -> Iterator[tuple[object, ...]]:
    for folder, folders, files, descriptor in os.fwalk(path, dir_fd=root):
        folders.sort()
        for name in sorted((*folders, *files)):
            status = _status(descriptor, name)
            if status is not None:
                yield (below(folder, name), status.st_ino, *_stamp(status))


def _status(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    """Of anything but a link or a folder's own entries: what changes whenever its content does."""
    return (status.st_mode, status.st_size, status.st_ctime_ns)


MOST_NOTES = 20

LONGEST_SHOWN = 160
"""Characters of a path in a note, so that a report has a bound."""


def changes(before: Snapshot) -> tuple[str, ...]:
    """Describe the changes in sentences. Call it once all processes of the command are gone."""
    reason = (
        "commands cannot write there, so somebody else did, or replaced it and let the command write"
        if before.mounted
        else "the command did it or somebody else"
    )
    notes: list[str] = []
    for place, protected in before.protected.items():
        now = fingerprint_of(before, place, is_folder=protected.is_folder)
        if now != protected.print:
            notes.append(
                f"{_shown(before, place)} {'is gone' if now is None else 'changed'} while the command ran: "
                f"{reason}. The user should look at it before using it."
            )
    return bounded(notes)


def bounded(notes: Sequence[str]) -> tuple[str, ...]:
    """The first of `notes`, and how many more there are."""
    more = len(notes) - MOST_NOTES
    return (*notes[:MOST_NOTES], *((f"There are {more} more such paths.",) if more > 0 else ()))


def shortened(path: str) -> str:
    """`path`, without its middle if it is too long for a note."""
    half = LONGEST_SHOWN // 2
    return path if len(path) <= LONGEST_SHOWN else f"{path[:half]}…{path[-half:]}"


def _shown(before: Snapshot, place: ProtectedPath) -> str:
    return shortened(place.path if len(before.roots) == 1 else place.absolute)
