"""Confines each kind of process in one call: by Landlock for files, by a system call filter for the rest.

The process, and anything it starts, cannot undo any of this. A process of
root also loses its capabilities.
"""

import errno
import os
import sys
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class Locked:
    """The confinement of the server process."""

    abi: int
    """The version of Landlock in use."""
    missing: tuple[str, ...]
    """Of the places that were asked for, those that are not there."""


# --- the server ------------------------------------------------------------------------------------------


@_explained()
def lock_server(  # noqa: PLR0913  the version is for tests; the others are what the settings say
    *,
    mode: str,
    reads: Sequence[str],
    writes: Sequence[str],
    network: bool,
    port: int | None = None,
    abi: int | None = None,
) -> Locked:
    """Hold this process to reading `reads` and what the interpreter needs, and to writing `writes`.

    It can start no program and, without `network`, open no connection; sockets that listen already go on.
    With `network` it opens connections to any address: which ones is for the caller to guard. Without, it
    opens them to the TCP port `port` only, of any address; to none if that is None. In
    read-only mode it changes no mode, owner, time or attribute of a file either. `abi` lowers the version of
    Landlock that is used.

    Raises:
        LockError: there are other threads, or this machine lacks what it takes.
        ValueError: `mode` is none that is enforced.
    """
    only_port = None if network else port
    wanted = _server_filter(mode, network, only_port)
    _refuse_threads()
    instructions = seccomp.program(wanted)
    if only_port is not None:
        _require_port_rules(abi)
    rules = Rules(
        reads=(*system_places(), *reads),
        writes=tuple(writes),
        devices=("/dev/null",),
        connects=network,
        connects_to=() if only_port is None else (only_port,),
    )
    missing = landlock.restrict(rules, abi)
    _keep_capabilities(kernel.FILE_CAPABILITIES)
    seccomp.load(instructions)
    named = {*reads, *writes}
    return Locked(
        abi=landlock.usable_abi(abi),
        missing=tuple(place for place in missing if isinstance(place, str) and place in named),
    )


def _server_filter(mode: str, network: bool, port: int | None) -> Filter:
    families = frozenset[int]()
    if network:
        families = frozenset({seccomp.INET, seccomp.INET6, seccomp.NETLINK})
    elif port is not None:
        families = frozenset({seccomp.INET, seccomp.INET6})
    # Replacing a file keeps the mode and the owner of the old one, so writing files takes both.
    return Filter(
        families=families, datagrams=network, metadata=_writes(mode), connects=network or port is not None
    )


def _require_port_rules(abi: int | None) -> None:
    """Raises: LockError: this kernel cannot limit connections to a port."""
    found = kernel.landlock_abi()
    version = found if abi is None else min(found, abi)
    if version < landlock.FIRST_ABI_WITH_TCP:
        raise LockError(
            "with --network none the model of [agent] needs a kernel that limits connections to its port: "
            f"Landlock {landlock.FIRST_ABI_WITH_TCP} (Linux 6.7); use --network fetch"
        )


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
    instructions = seccomp.program(Filter(executes=True))
    rules = Rules(
        reads=(cwd, *_LIBRARIES, *_RANDOM),
        executes=(*_LOADERS, *program_places),
        devices=("/dev/null",),
    )
    landlock.restrict(rules)
    # The server of root reads what belongs to others, and so does its search.
    _keep_capabilities(kernel.CAP_DAC_READ_SEARCH)
    seccomp.load(instructions)


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


def system_helper_filter() -> Filter:
    """The filter for a helper program behind bubblewrap: it has no socket."""
    return Filter(metadata=True, named_memory=True, executes=True)


@_explained()
def lock_command(
    *,
    roots: Sequence[str],
    writes: Sequence[str],
    hidden: Sequence[str],
    writable_roots: bool,
    network: bool,
) -> None:
    """Hold this process, which is about to become a command, where it cannot have mounts of its own.

    It reads and executes everything but `hidden` and devices, writes `writes` and, with `writable_roots`,
    `roots`. A folder above something hidden cannot be listed, and what is made in it later cannot be read.

    Raises:
        LockError: this machine lacks what it takes, or something hidden lies where the command may write.
    """
    mode = WORKSPACE_WRITE if writable_roots else READ_ONLY
    instructions = seccomp.program(command_filter(mode, network, shared=True))
    written = (*writes, *roots) if writable_roots else tuple(writes)
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
    landlock.restrict(rules)
    _keep_capabilities(0)
    seccomp.load(instructions)


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


# --- each step, with an error for the operator -----------------------------------------------------------


def _writes(mode: str) -> bool:
    if mode not in (READ_ONLY, WORKSPACE_WRITE):
        raise ValueError(f"nothing is enforced in {mode}")
    return mode == WORKSPACE_WRITE


def _keep_capabilities(kept: int) -> None:
    try:
        kernel.keep_capabilities(kept)
    except OSError as error:
        raise LockError(f"The powers of root cannot be given up: {_sentence(error)}") from None


def _sentence(error: OSError) -> str:
    if isinstance(error, kernel.Unsupported):
        return str(error.strerror)
    if error.errno == errno.E2BIG:
        return "Landlock holds this process 16 times already, which is as often as it can"
    return f"the kernel refuses to hold this process ({error.strerror})"
