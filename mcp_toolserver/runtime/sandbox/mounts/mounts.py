"""The view of the file system that a command gets: what is mounted where.

The whole machine read-only; over it a /dev, a /proc and scratch folders of the command's own, and emptiness
where secrets and sockets are; then the roots. A root that the command's client does not work in is empty. In
a root that may be written, protected paths are read-only, and every folder between the root and a mount
within it is mounted over itself: a mount point cannot be renamed, so no mount can be moved aside together
with the folder it lies in.
"""

import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from mcp_toolserver.runtime.sandbox.layers.spec import TEMPORARY, may_share, secret_paths
from mcp_toolserver.runtime.sandbox.protected.open_nofollow import is_out_of_reach
from mcp_toolserver.runtime.sandbox.protected.snapshot import WRITING, Snapshot
from mcp_toolserver.runtime.sandbox.protected.unprotectable import Unprotectable
from mcp_toolserver.text.file_names import lies_in

SCRATCH = {"/tmp": 1 << 30, "/var/tmp": 1 << 28, "/dev/shm": 1 << 28}  # noqa: S108  # the command's own
"""Folders that start empty and end with the command, with their sizes in bytes."""

RESOLVER = "/etc/resolv.conf"
"""Names cannot be looked up without it, and it may point into a masked folder."""

MOST_SOCKETS = 256
"""Masked outside the roots; each costs a mount."""

MOST_IN_ONE_FOLDER = 16
"""Where there are more than `MOST_SOCKETS`, a folder with more than so many is masked as a whole."""

SYSTEM = ("/", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc")
"""Without them no command runs."""

Mount = Literal[
    "machine",
    "devices",
    "processes",
    "scratch",
    "session",
    "empty folder",
    "empty file",
    "unreadable file",
    "socket",
    "read-only",
    "writable",
]

Mounts = Mapping[str, Mount]
"""By absolute path without links."""

_BARE = ("scratch", "empty folder")


@dataclass(frozen=True, kw_only=True)
class Visibility:
    """Adds what one command sees to what all commands see."""

    roots: tuple[str, ...] | None = None
    """Those that its client works in, each a root of the server or within one; None for all."""
    hidden: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """Paths that rules hide, without links, each with whether it is a folder."""
    hides_sockets: bool = False
    """Whether sockets are masked, of which a command that may write in the roots reaches those there."""
    shares_temporary: bool = False
    """Whether the command has the temporary folder of its session."""
    working: tuple[str, ...] = ()
    """Folders that processes of this machine work in, see `working_folders`."""
    interpreter: str = ""
    """The folder of the Python that starts the command, which the command must see and not change."""
    prepared: str = ""
    """See `SandboxPlan.prepared`."""


EVERYTHING = Visibility()


def mounts(before: Snapshot, visibility: Visibility = EVERYTHING) -> Mounts:
    """What is mounted for a command.

    Raises:
        Unprotectable: a root lies where a command gets its own devices or processes, a root cannot be kept
            from a client of another, or there are too many sockets to mask.
        OSError: the sockets of this machine cannot be listed.
    """
    made = _own()
    roots = tuple(before.roots) if visibility.roots is None else visibility.roots
    for root in before.roots:
        if root in ("/dev", "/proc") or _containing(made, root) in ("devices", "processes"):
            raise Unprotectable(
                f"{root} cannot be a root of confined commands. Name another folder with --root."
            )
    writes = before.sandbox.mode == WRITING
    written = tuple(root for root in roots if writes and not before.sandbox.is_read_only(root))
    _empty(made, before.roots, roots)
    made |= {root: "writable" if root in written else "read-only" for root in roots}
    _hide(made, visibility.hidden)
    _cover(made, before)
    _show_certificates(made, before, visibility.hidden)
    if visibility.prepared:
        made[visibility.prepared] = "read-only"
    if visibility.hides_sockets:
        # What a command asks a service of the machine for may be a change.
        _hide_sockets(made, written, visibility.working)
    if visibility.interpreter and _containing(made, visibility.interpreter) in (*_BARE, "writable"):
        made.setdefault(visibility.interpreter, "read-only")
    _keep_read_only(made, before, written)
    _pin(made, written)
    if visibility.shares_temporary and made.get(TEMPORARY) == "scratch" and may_share(before.roots, made):
        made[TEMPORARY] = "session"
    return made


def scratch_folder(made: Mounts) -> str:
    """Where temporary files go."""
    return next((folder for folder in SCRATCH if made.get(folder) in ("scratch", "session")), "/dev")


def _own() -> dict[str, Mount]:
    made: dict[str, Mount] = {"/": "machine", "/dev": "devices", "/proc": "processes"}
    for folder in SCRATCH:
        # A mount point cannot be made on a read-only machine; /dev/shm is made with /dev.
        is_folder = os.path.isdir(folder) and os.path.realpath(folder) == folder
        if is_folder or folder == "/dev/shm":  # noqa: S108
            made[folder] = "scratch"
    return made


def _empty(made: dict[str, Mount], roots: Iterable[str], shown: tuple[str, ...]) -> None:
    """Show nothing of the roots that are not `shown`."""
    for root in roots:
        if root in shown:
            continue
        if root in SYSTEM:
            raise Unprotectable(
                f"The root {root} holds the system, so a command cannot be kept to the part of it that the "
                "client works in. Start the server with that folder as --root."
            )
        if _containing(made, root) not in _BARE:
            made[root] = "empty folder"


def _hide(made: dict[str, Mount], hidden: Mapping[str, bool]) -> None:
    """Mask what rules hide, but not where nothing can be seen anyway."""
    for path in sorted(hidden):
        if _is_seen(made, path) and not _is_closed(path):
            made[path] = "empty folder" if hidden[path] else "unreadable file"


def _hide_sockets(made: dict[str, Mount], reachable: tuple[str, ...], working: tuple[str, ...]) -> None:
    """Mask the sockets outside the folders `reachable`, but not where nothing can be seen anyway."""
    unseen = (*_BARE, "devices", "processes")
    paths = {
        path
        for path in set(socket_paths(working))
        if _containing(made, path) not in unseen
        and not any(lies_in(folder, path) for folder in reachable)
        and not _is_closed(path)
    }
    if len(paths) > MOST_SOCKETS:
        paths = _with_folders(made, paths)
    for path in sorted(paths):
        if _containing(made, path) not in _BARE:
            made[path] = "empty folder" if os.path.isdir(path) else "socket"


def _with_folders(made: Mounts, paths: set[str]) -> set[str]:
    """`paths`, with folders in the place of the many that lie in them, where a folder holds nothing else that
    is mounted."""
    counted = Counter(map(os.path.dirname, paths))
    full = {
        folder
        for folder, count in counted.items()
        if count > MOST_IN_ONE_FOLDER
        and folder not in SYSTEM
        and not any(lies_in(folder, path) for path in made)
    }
    fewer = full | {path for path in paths if os.path.dirname(path) not in full}
    if len(fewer) > MOST_SOCKETS:
        raise Unprotectable(
            f"There are {len(fewer)} sockets and folders of sockets that commands must not reach, more than "
            f"the {MOST_SOCKETS} that they can be kept from; {min(fewer)} is one. Remove those that are not "
            "needed."
        )
    return fewer


def _is_closed(path: str) -> bool:
    """Whether commands cannot get to `path`, though this process, as root, can."""
    if os.geteuid() != 0:
        return False
    top = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return is_out_of_reach(top, path[1:])
    except FileNotFoundError:
        return True
    finally:
        os.close(top)


def _cover(made: dict[str, Mount], before: Snapshot) -> None:
    """Add what hides and what protects, but not where nothing can be seen anyway."""
    for path, is_folder in sorted(secret_paths(before.sandbox)):
        if path not in before.roots and _containing(made, path) not in _BARE:
            made[path] = "empty folder" if is_folder else "empty file"
    for place in before.protected:
        is_open = before.is_pinned_only(place)
        if _containing(made, place.absolute) not in _BARE:
            made.setdefault(place.absolute, "writable" if is_open else "read-only")
        if not is_open:
            # A root that is shown may itself be protected, or lie in what is.
            inner = [path for path in made if made[path] == "writable" and lies_in(place.absolute, path)]
            made |= dict.fromkeys(inner, "read-only")
    resolver = os.path.realpath(RESOLVER)
    if before.sandbox.network and _containing(made, resolver) in _BARE and os.path.isfile(resolver):
        made[resolver] = "read-only"


def _keep_read_only(made: dict[str, Mount], before: Snapshot, written: tuple[str, ...]) -> None:
    """Make what nothing may write in read-only, with all that is mounted in it."""
    sandbox = before.sandbox
    for path in sandbox.read_only:
        if any(lies_in(root, path) for root in written):
            made.setdefault(path, "read-only")
    made |= {path: "read-only" for path in made if made[path] == "writable" and sandbox.is_read_only(path)}


def _show_certificates(made: dict[str, Mount], before: Snapshot, hidden: Iterable[str]) -> None:
    # A mount in the temporary folder would keep a session from sharing it.
    others = (TEMPORARY, *before.roots, *hidden)
    for path in before.sandbox.certificates:
        bare = _containing(made, path) in _BARE and os.path.isfile(path)
        if bare and not any(lies_in(one, path) for one in others):
            made.setdefault(path, "read-only")


def _pin(made: dict[str, Mount], roots: Iterable[str]) -> None:
    """Mount the folders between a root and what is mounted in it over themselves, down to what is not
    writable anyway."""
    for root in roots:
        start = f"{root.rstrip('/')}/"
        for path in [path for path in made if path.startswith(start) and made[path] != "scratch"]:
            way = root.rstrip("/")
            for folder in path.removeprefix(start).split("/")[:-1]:
                way = f"{way}/{folder}"
                if made.setdefault(way, "writable") != "writable":
                    break


def _is_seen(made: Mounts, path: str) -> bool:
    """Whether a command sees something at `path`: it is shown itself, or what it lies in is."""
    return made.get(path) in ("read-only", "writable") or _containing(made, path) not in _BARE


def _containing(made: Mounts, path: str) -> Mount | None:
    """What holds `path`: the nearest mount above it."""
    while path != "/":
        path = os.path.dirname(path)
        if path in made:
            return made[path]
    return None


# --- the sockets with a path on this machine -------------------------------------------------------------
#
# Neither a read-only mount nor Landlock before version 9 refuses a connection to one. The kernel lists a
# socket under the name that it was bound to, in `/proc/net/unix`, for one network namespace only. So what
# is not found is: a socket that was renamed since or has a second link, one whose name leads through a
# folder that this process may not enter, one bound to a relative name by a process whose folder is not
# known or has changed, and one of another network namespace.

LIST = "/proc/net/unix"

LONGEST_NAME = 108
"""Bytes of a socket's path."""

# Number, references, protocol, flags, type, state, inode, and a name if it has one.
_ENTRY = re.compile(rb"[^ ]+: [0-9A-F]{8} [0-9A-F]{8} [0-9A-F]{8} [0-9A-F]{4} [0-9A-F]{2} +[0-9]+ (.+)", re.S)


def bound_names(listed: bytes) -> Iterator[tuple[bytes, bool]]:
    """The names in the kernel's list `listed`, each with whether it is a guess.

    The list does not mark the end of a name, which may hold line ends. So each entry is also read as if the
    lines after it belonged to its name; where that is wrong, nothing has such a name.
    """
    lines = listed.split(b"\n")
    for number, line in enumerate(lines):
        found = _ENTRY.match(line)
        # A name that starts with @ is abstract: it has no path.
        if found is None or found[1].startswith(b"@"):
            continue
        name = found[1]
        yield name, False
        for more in lines[number + 1 :]:
            name += b"\n" + more
            if len(name) > LONGEST_NAME:
                break
            yield name, True


def socket_paths(working: Sequence[str]) -> Iterator[str]:
    """The paths of all sockets found, absolute and without links; perhaps more than once.

    Those bound to a relative name are looked for in the folders `working`.

    Raises:
        OSError: the kernel's list cannot be read.
    """
    names = dict(bound_names(Path(LIST).read_bytes()))
    folders: dict[str, str] = {}
    for name, is_guess in names.items():
        path = os.fsdecode(name)
        for candidate in [path] if path.startswith("/") else [f"{folder}/{path}" for folder in working]:
            # A guess is seldom right, so it is looked at before anything else is done for it.
            if is_guess and not os.path.lexists(candidate):
                continue
            folder, _, last = candidate.rpartition("/")
            if folder not in folders:
                folders[folder] = os.path.realpath(folder or "/")
            place = f"{folders[folder].rstrip('/')}/{last}"
            if _is_socket(place):
                yield place


def working_folders() -> tuple[str, ...]:
    """Where processes work, as far as this one may know, if any socket was bound to a relative name.

    A process that Landlock holds knows of none. Raises: OSError: the kernel's list cannot be read."""
    if all(name.startswith(b"/") for name, is_guess in bound_names(Path(LIST).read_bytes()) if not is_guess):
        return ()
    found: set[str] = set()
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError):
                found.add(os.readlink(f"/proc/{name}/cwd"))
    return tuple(sorted(found))


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False
