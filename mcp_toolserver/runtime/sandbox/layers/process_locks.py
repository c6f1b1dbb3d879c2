"""Confines each kind of process in one call: by Landlock for files, by a system call filter for the rest.

The process, and anything it starts, cannot undo any of this. A process of
root also loses its capabilities.
"""

import errno
import os
import sys
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from mcp_toolserver.runtime.sandbox.layers import kernel, landlock, seccomp
from mcp_toolserver.runtime.sandbox.layers.landlock import Rules
from mcp_toolserver.runtime.sandbox.layers.seccomp import Filter

READ_ONLY, WORKSPACE_WRITE = "read-only", "workspace-write"

MOST_NEIGHBOURS = 4096
"""Entries of one folder next to something hidden; each costs a rule."""

_STORES = ("/nix/store", "/gnu/store")
"""Where some systems keep programs and libraries."""

_LIBRARIES = (
    *("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib"),
    *("/etc/ld.so.cache", "/etc/ld.so.preload"),
)
_LOADERS = (
    *("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"),
    *("/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-aarch64.so.1"),
    *_STORES,
)
"""What starts a program that shares libraries; it is executed itself."""

_RANDOM = ("/dev/random", "/dev/urandom")
_RESOLVER = "/etc/resolv.conf"
_LEAST_DEPTH_OF_RESOLVER_FOLDER = 3


class LockError(RuntimeError):
    """The process is not confined, or only in part, and must not go on. The text is for the operator."""


@contextmanager
def _explained() -> Generator[None]:
    """Raises: LockError: what was done raised an OSError."""
    try:
        yield
    except OSError as error:
        raise LockError(_sentence(error)) from None


def _hold(rules: Rules, wanted: Filter, capabilities: int) -> int:
    """Hold this process to all of it; returns the version of Landlock."""
    instructions = seccomp.program(wanted)
    version = landlock.restrict(rules)
    try:
        kernel.keep_capabilities(capabilities)
    except OSError as error:
        raise LockError(f"The powers of root cannot be given up: {_sentence(error)}") from None
    seccomp.load(instructions)
    return version


# --- the server ------------------------------------------------------------------------------------------


@_explained()
def lock_server(
    *, mode: str, reads: Sequence[str], writes: Sequence[str], network: bool, port: int | None = None
) -> int:
    """Hold this process to reading `reads` and what the interpreter needs, and to writing `writes`; returns
    the version of Landlock that does.

    It can start no program and, without `network`, open no connection; sockets that listen already go on.
    With `network` it opens connections to any address: which ones is for the caller to guard. Without, it
    opens them to the TCP port `port` only, of any address; to none if that is None. In
    read-only mode it changes no mode, owner, time or attribute of a file either.

    Raises:
        LockError: there are other threads, or this machine lacks what it takes.
        ValueError: `mode` is none that is enforced.
    """
    ports = () if network or port is None else (port,)
    connects = network or bool(ports)
    wanted = Filter(
        families=frozenset({seccomp.INET, seccomp.INET6, *((seccomp.NETLINK,) if network else ())})
        if connects
        else frozenset(),
        datagrams=network,
        # Replacing a file keeps the mode and the owner of the old one, so writing files takes both.
        metadata=_writes(mode),
        connects=connects,
    )
    _refuse_threads()
    if ports and landlock.abi() < landlock.FIRST_ABI_WITH_TCP:
        raise LockError(
            "with --network none the model of [agent] needs a kernel that limits connections to its port: "
            f"Landlock {landlock.FIRST_ABI_WITH_TCP} (Linux 6.7); use --network fetch"
        )
    rules = Rules(
        reads=(*system_places(), *reads),
        writes=tuple(writes),
        devices=("/dev/null",),
        connects=network,
        connects_to=ports,
    )
    return _hold(rules, wanted, kernel.FILE_CAPABILITIES)


@_explained()
def lock_proxy() -> None:
    """Hold this process, the proxy of commands, to internet sockets and to reading what looks up names.

    Raises:
        LockError: this machine lacks what it takes.
    """
    names = ("/etc/hosts", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/host.conf", _resolver_place())
    wanted = Filter(families=frozenset({seccomp.INET, seccomp.INET6, seccomp.NETLINK}), connects=True)
    _hold(Rules(reads=(*_LIBRARIES, *_RANDOM, *names), devices=(), connects=True), wanted, 0)


def _refuse_threads() -> None:
    """Landlock holds the thread that asks for it, and those that it starts later."""
    try:
        threads = len(os.listdir("/proc/self/task"))
    except OSError:
        raise LockError("/proc is not there, so the threads of this process cannot be counted") from None
    if threads != 1:
        raise LockError(f"{threads} threads run where one must: the others would not be confined")


def system_places() -> tuple[str, ...]:
    """What a Python process reads for its own sake, and no more of anybody's files than that."""
    return (
        *("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/etc", *_STORES),
        *(*_RANDOM, "/proc/self", "/sys/devices/system/cpu"),
        *python_places(),
        _resolver_place(),
    )


def python_places() -> tuple[str, ...]:
    """Where the interpreter, its modules and this package lie.

    Of the places modules come from, the current folder and those above it are left out: Python adds the first
    by itself, and it may be somebody's home.
    """
    here = os.path.join(os.getcwd(), "")
    modules = (
        place for place in sys.path if place.startswith("/") and not here.startswith(os.path.join(place, ""))
    )
    return (
        *(sys.prefix, sys.base_prefix, sys.exec_prefix),
        *dict.fromkeys(modules),
        str(Path(__file__).parents[3]),
    )


def _resolver_place() -> str:
    """Where the list of name servers lies. It is replaced whole when the network changes, so a rule for the
    folder outlives one for the file; but a folder high up holds more than that."""
    folder = Path(os.path.realpath(_RESOLVER)).parent
    return str(folder) if len(folder.parts) > _LEAST_DEPTH_OF_RESOLVER_FOLDER else _RESOLVER


# --- programs of our own ---------------------------------------------------------------------------------


@_explained()
def lock_helper(cwd: int, program_places: Sequence[str]) -> None:
    """Restrict this process, which is about to become a helper program, to reading below the open folder
    `cwd`.

    `program_places` are the program and the files that it reads in addition to the system's libraries; it may
    execute those. It can write no file and open no socket.

    Raises:
        LockError: this machine lacks what it takes.
    """
    rules = Rules(
        reads=(cwd, *_LIBRARIES, *_RANDOM),
        executes=(*_LOADERS, *program_places),
        devices=("/dev/null",),
    )
    # The server of root reads what belongs to others, and so does its search.
    _hold(rules, Filter(executes=True), kernel.CAP_DAC_READ_SEARCH)


# --- commands --------------------------------------------------------------------------------------------


def command_filter(mode: str, network: bool, *, shared: bool = False) -> Filter:
    """The filter for a command. `network` is whether it may use the machine's network.

    It is narrower for a command that has the machine's own namespaces, `shared`: there no mount keeps modes,
    owners and times, and others see what memory it names. In a network namespace that leads nowhere, a
    command may use every kind of socket that programs need.

    Raises:
        ValueError: `mode` is none that is enforced.
    """
    writes = _writes(mode)
    has_loopback = not network and not shared
    local = {seccomp.UNIX} if writes or has_loopback else set[int]()
    internet = {seccomp.INET, seccomp.INET6, seccomp.NETLINK} if network or has_loopback else set[int]()
    families = frozenset(local | internet)
    return Filter(
        families=families,
        metadata=writes or not shared,
        named_memory=not shared,
        executes=True,
        connects=bool(families),
    )


SYSTEM_HELPER_FILTER = Filter(metadata=True, named_memory=True, executes=True)
"""For a helper program behind bubblewrap: it has no socket."""


@_explained()
def lock_command(
    mode: str, *, roots: Sequence[str], writes: Sequence[str], hidden: Sequence[str], network: bool
) -> None:
    """Hold this process, which is about to become a command, where it cannot have mounts of its own.

    It reads and executes everything but `hidden` and devices, writes `writes` and, if `mode` allows that,
    `roots`. A folder above something hidden cannot be listed, and what is made in it later cannot be read.

    Raises:
        LockError: this machine lacks what it takes, or something hidden lies where the command may write.
        ValueError: `mode` is none that is enforced.
    """
    written = (*writes, *roots) if _writes(mode) else tuple(writes)
    # Devices are shown one by one: among them are disks, which hold all that is hidden.
    concealed = {os.path.realpath(path) for path in hidden} | {"/dev"}
    _refuse_hidden_inside(written, concealed)
    rules = Rules(
        reads=_RANDOM,
        listed=tuple(everything_but(concealed, ("/", *roots))),
        writes=written,
        connects=network,
        binds=network,
    )
    _hold(rules, command_filter(mode, network, shared=True), 0)


def everything_but(hidden: Collection[str], tops: Sequence[str]) -> Iterator[str]:
    """Places that together hold all below `tops`, without links, but none of `hidden`.

    All paths are absolute and hold no link. A top within something hidden is shown all the same.

    Raises:
        LockError: a folder has too many entries next to something hidden.
    """
    above = {str(parent) for path in hidden for parent in Path(path).parents}
    todo = [top for top in tops if top not in hidden]
    while todo:
        place = todo.pop()
        if place in above:
            todo += [child for child in _children(place) if child not in hidden]
        else:
            yield place


def _children(folder: str) -> list[str]:
    """What is in a folder, without links: what they lead to is shown under its own name or not at all."""
    try:
        with os.scandir(folder) as found:
            entries = list(islice(found, MOST_NEIGHBOURS + 1))
    except OSError:
        return []
    if len(entries) > MOST_NEIGHBOURS:
        raise LockError(
            f"{folder} has too many entries to show all but what is hidden in it; move that elsewhere"
        )
    return [entry.path for entry in entries if not entry.is_symlink()]


def _refuse_hidden_inside(written: Sequence[str], hidden: Collection[str]) -> None:
    """Rights to a folder hold for all below it."""
    for place in written:
        within = os.path.join(os.path.realpath(place), "")
        found = next((path for path in hidden if os.path.join(path, "").startswith(within)), None)
        if found is not None:
            raise LockError(
                f"{found} is hidden and lies where commands may write ({place}), which Landlock cannot keep"
                " apart; move it elsewhere, or install bubblewrap"
            )


# --- for all of them -------------------------------------------------------------------------------------


def _writes(mode: str) -> bool:
    if mode not in (READ_ONLY, WORKSPACE_WRITE):
        raise ValueError(f"nothing is enforced in {mode}")
    return mode == WORKSPACE_WRITE


def _sentence(error: OSError) -> str:
    if isinstance(error, kernel.Unsupported):
        return str(error.strerror)
    if error.errno == errno.E2BIG:
        return "Landlock holds this process 16 times already, which is as often as it can"
    return f"the kernel refuses to hold this process ({error.strerror})"
