"""The sockets with a path on this machine, so that commands can be kept from those outside their roots.

Neither a read-only mount nor Landlock before version 9 refuses a connection to one. The kernel lists a socket
under the name that it was bound to, in `/proc/net/unix`, for one network namespace only. So what is not found
is: a socket that was renamed since or has a second link, one whose name leads through a folder that this
process may not enter, one bound to a relative name by a process whose folder is not known or has changed, and
one of another network namespace.
"""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

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

    A process that Landlock holds knows of none.

    Raises:
        OSError: the kernel's list cannot be read.
    """
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
