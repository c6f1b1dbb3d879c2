"""What a process, and all it starts, may do with files, devices and TCP: Landlock.

Rules only add rights. What is handled and granted nowhere is refused; what this kernel cannot handle stays
allowed, so `missing_rights` names it and a version without truncation is refused altogether. Rights are
checked when a file is opened: a descriptor that is open before keeps what it could do.
"""

import errno
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntFlag

from mcp_toolserver.runtime.sandbox.layers import kernel

FIRST_ABI_WITH_SOCKETS = 9

FIRST_ABI_WITH_TCP = 4

LEAST_ABI = 3
"""Before it, a file can be emptied that cannot be written."""


class Right(IntFlag):
    """What can be done with a file or folder."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15
    RESOLVE_UNIX = 1 << 16


class Net(IntFlag):
    """What can be done with an address."""

    BIND_TCP = 1 << 0
    CONNECT_TCP = 1 << 1
    BIND_UDP = 1 << 2
    CONNECT_SEND_UDP = 1 << 3


class Scope(IntFlag):
    """What reaches no further than the processes under the same ruleset."""

    ABSTRACT_UNIX_SOCKET = 1 << 0
    SIGNAL = 1 << 1


# Numbers from here on: combining flags costs a fork more than the system calls do.
_RIGHTS = (
    (1, (1 << 13) - 1),
    (2, int(Right.REFER)),
    (3, int(Right.TRUNCATE)),
    (5, int(Right.IOCTL_DEV)),
    (9, int(Right.RESOLVE_UNIX)),
)
_NET = ((4, int(Net.BIND_TCP | Net.CONNECT_TCP)), (10, int(Net.BIND_UDP | Net.CONNECT_SEND_UDP)))
_SCOPES = ((6, int(Scope.ABSTRACT_UNIX_SOCKET | Scope.SIGNAL)),)

_IN_WORDS = (
    (1, "files"),
    (2, "moving between folders"),
    (3, "truncating files"),
    (4, "TCP"),
    (5, "commands to devices"),
    (6, "signals"),
    (6, "abstract sockets"),
    (9, "sockets with a path"),
    (10, "UDP"),
)

OF_FILES = int(
    Right.EXECUTE | Right.WRITE_FILE | Right.READ_FILE | Right.TRUNCATE | Right.IOCTL_DEV | Right.RESOLVE_UNIX
)
"""Rights that something other than a folder can have; the kernel takes no others for it."""

READ = int(Right.READ_FILE | Right.READ_DIR)
EXECUTE = READ | int(Right.EXECUTE)
WRITE = ~int(Right.MAKE_CHAR | Right.MAKE_BLOCK)
USE = int(Right.READ_FILE | Right.WRITE_FILE | Right.TRUNCATE | Right.IOCTL_DEV)

_UNHANDLED_TO_CONNECT = ~int(Net.CONNECT_TCP | Net.CONNECT_SEND_UDP | Net.BIND_UDP)
"""Sending a first datagram takes a port, which is binding to this kernel."""
_UNHANDLED_TO_BIND = ~int(Net.BIND_TCP | Net.BIND_UDP)

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx")
"""What shells and programs write to and that keeps nothing."""

PathOrFd = str | int
"""An absolute path, links followed; or the descriptor of what is open already."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What is allowed; each place with all that lies below it."""

    reads: tuple[PathOrFd, ...] = ()
    executes: tuple[PathOrFd, ...] = ()
    """Read as well."""
    listed: tuple[str, ...] = ()
    """As `executes`, absolute and with no link in it: where a link has come since, the place is skipped."""
    writes: tuple[PathOrFd, ...] = ()
    """Everything, but making device files."""
    devices: tuple[PathOrFd, ...] = DEVICES
    """Read and written, never made."""
    connects: bool = False
    """Whether connections may be opened."""
    connects_to: tuple[int, ...] = ()
    """Where they may not: the TCP ports to which they may nevertheless, of any address."""
    binds: bool = False
    """Whether an address may be taken to listen on."""


def restrict(rules: Rules, abi: int | None = None) -> tuple[PathOrFd, ...]:
    """Hold this thread, and all that it starts from now on, to `rules`; the places that were not there.

    Other threads stay as free as they were, so there should be none. `abi` lowers the version that is used,
    and cannot raise it.

    Raises:
        Unsupported: no Landlock here, or too old a one.
        OSError: the kernel refused; E2BIG when 16 rulesets hold this thread already.
    """
    version = usable_abi(abi)
    rights = handled_rights(version)
    ruleset = kernel.landlock_ruleset(_attributes(version, rights, _handled_net(version, rules)))
    try:
        missing = tuple(
            place
            for place, wanted, follow in _granted(rules)
            if not _grant(ruleset, place, wanted & rights, follow)
        )
        for port in rules.connects_to:
            kernel.landlock_allow_port(ruleset, port, int(Net.CONNECT_TCP))
        kernel.landlock_enforce(ruleset)
    finally:
        os.close(ruleset)
    return missing


def usable_abi(abi: int | None = None) -> int:
    """The version that `restrict` uses.

    Raises:
        Unsupported: it is not good enough.
    """
    found = kernel.landlock_abi()
    version = found if abi is None else min(found, abi)
    if version <= 0:
        raise kernel.Unsupported(
            errno.ENOSYS, "This kernel has no Landlock, or it is left out of `lsm=` on its command line"
        )
    if version < LEAST_ABI:
        raise kernel.Unsupported(
            errno.ENOSYS,
            f"Landlock has version {version} here, which cannot keep files from being emptied: "
            f"version {LEAST_ABI} (Linux 6.2) is needed",
        )
    return version


def handled_rights(abi: int) -> int:
    """The rights to files that this version can refuse, as bits of `Right`."""
    return _since(_RIGHTS, abi)


def missing_rights(abi: int) -> tuple[str, ...]:
    """What this version cannot refuse, in words."""
    return tuple(words for since, words in _IN_WORDS if abi < since)


def mended_errata() -> tuple[int, ...]:
    """The numbers of the known mistakes in Landlock that this kernel says it does not make."""
    bits = kernel.landlock_errata()
    return tuple(bit + 1 for bit in range(bits.bit_length()) if bits >> bit & 1)


def _since(table: Iterable[tuple[int, int]], abi: int) -> int:
    return sum(bits for since, bits in table if abi >= since)


def _handled_net(abi: int, rules: Rules) -> int:
    handled = _since(_NET, abi)
    if rules.connects:
        handled &= _UNHANDLED_TO_CONNECT
    if rules.binds:
        handled &= _UNHANDLED_TO_BIND
    return handled


def _attributes(abi: int, rights: int, net: int) -> bytes:
    attributes = struct.pack("=QQQ", rights, net, _since(_SCOPES, abi))
    return attributes[: 8 if abi < 4 else 16 if abi < 6 else 24]


def _granted(rules: Rules) -> Iterator[tuple[PathOrFd, int, bool]]:
    """Each place, what is allowed there, and whether links on the way are followed."""
    for places, rights in (
        (rules.reads, READ),
        (rules.executes, EXECUTE),
        (rules.writes, WRITE),
        (rules.devices, USE),
    ):
        for place in places:
            yield place, rights, True
    for place in rules.listed:
        yield place, EXECUTE, False


def _grant(ruleset: int, place: PathOrFd, rights: int, follow: bool) -> bool:
    """Add one rule; false when the place cannot be reached."""
    if isinstance(place, int):
        _allow(ruleset, place, rights)
        return True
    try:
        handle = os.open(place, os.O_PATH | os.O_CLOEXEC) if follow else kernel.open_without_links(place)
    except OSError:
        return False
    try:
        _allow(ruleset, handle, rights)
    finally:
        os.close(handle)
    return True


def _allow(ruleset: int, handle: int, rights: int) -> None:
    if not stat.S_ISDIR(os.fstat(handle).st_mode):
        rights &= OF_FILES
    kernel.landlock_allow_path(ruleset, handle, rights)
