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

from mcp_toolserver.runtime.sandbox.layers import kernel

LEAST_ABI = 3
"""Before it, a file can be emptied that cannot be written."""

FIRST_ABI_WITH_TCP, FIRST_ABI_WITH_SCOPES, FIRST_ABI_WITH_SOCKETS = 4, 6, 9

CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _ERRATA = 1, 2
_PATH_BENEATH, _NET_PORT = 1, 2
_RESOLVE_NO_SYMLINKS = 0x04

# What can be done with a file or folder.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
REFER, TRUNCATE, IOCTL_DEV, RESOLVE_UNIX = 1 << 13, 1 << 14, 1 << 15, 1 << 16

# What can be done with an address.
_BIND_TCP, _CONNECT_TCP, _BIND_UDP, _CONNECT_SEND_UDP = 1 << 0, 1 << 1, 1 << 2, 1 << 3

# What reaches no further than the processes under the same ruleset.
_ABSTRACT_UNIX_SOCKET, _SIGNAL = 1 << 0, 1 << 1

_RIGHTS = ((1, (1 << 13) - 1), (2, REFER), (3, TRUNCATE), (5, IOCTL_DEV), (9, RESOLVE_UNIX))
_NET = ((4, _BIND_TCP | _CONNECT_TCP), (10, _BIND_UDP | _CONNECT_SEND_UDP))
_SCOPES = ((6, _ABSTRACT_UNIX_SOCKET | _SIGNAL),)

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

_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | TRUNCATE | IOCTL_DEV | RESOLVE_UNIX
"""Rights that something other than a folder can have; the kernel takes no others for it."""

_READ = _READ_FILE | _READ_DIR
_WRITE = ~(_MAKE_CHAR | _MAKE_BLOCK)
_USE = _READ_FILE | _WRITE_FILE | TRUNCATE | IOCTL_DEV

_UNHANDLED_TO_CONNECT = ~(_CONNECT_TCP | _CONNECT_SEND_UDP | _BIND_UDP)
"""Sending a first datagram takes a port, which is binding to this kernel."""
_UNHANDLED_TO_BIND = ~(_BIND_TCP | _BIND_UDP)

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


def abi() -> int:
    """The version of Landlock here; 0 when there is none."""
    return _number(_VERSION)


def mended_errata() -> tuple[int, ...]:
    """The numbers of the known mistakes in Landlock that this kernel says it does not make."""
    bits = _number(_ERRATA)
    return tuple(bit + 1 for bit in range(bits.bit_length()) if bits >> bit & 1)


def _number(what: int) -> int:
    try:
        return kernel.system_call(CREATE_RULESET, None, 0, what)
    except OSError:
        return 0


def handled_rights(abi: int) -> int:
    """The rights to files that this version can refuse, as bits."""
    return _since(_RIGHTS, abi)


def missing_rights(abi: int) -> tuple[str, ...]:
    """What this version cannot refuse, in words."""
    return tuple(words for since, words in _IN_WORDS if abi < since)


def _since(table: Iterable[tuple[int, int]], abi: int) -> int:
    return sum(bits for since, bits in table if abi >= since)


def scope_signals(*, moves: bool = False) -> None:
    """From now on this process, and all it starts, can signal only each other.

    The ruleset restricts nothing else. Under another one for files, the kernel would take it to forbid moving
    files between folders; with `moves` it allows them, and forbids mounting. It needs `no_new_privs`, which
    lasts: a set-user-id program such as sudo gains nothing here.

    Raises:
        OSError: this kernel has no signal scopes (Linux before 6.12, or Landlock off).
    """
    if abi() < FIRST_ABI_WITH_SCOPES:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    top = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        rules = ((_PATH_BENEATH, struct.pack("=Qi", REFER, top)),) if moves else ()
        _enforce(struct.pack("=QQQ", REFER if moves else 0, 0, _SIGNAL), rules)
    finally:
        os.close(top)


def restrict(rules: Rules) -> int:
    """Hold this thread, and all that it starts from now on, to `rules`; returns the version of Landlock.

    Other threads stay as free as they were, so there should be none. Places that are not there are skipped.

    Raises:
        Unsupported: no Landlock here, or too old a one.
        OSError: the kernel refused; E2BIG when 16 rulesets hold this thread already.
    """
    version = abi()
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
    rights, net = handled_rights(version), _since(_NET, version)
    if rules.connects:
        net &= _UNHANDLED_TO_CONNECT
    if rules.binds:
        net &= _UNHANDLED_TO_BIND
    attributes = struct.pack("=QQQ", rights, net, _since(_SCOPES, version))
    size = 8 if version < FIRST_ABI_WITH_TCP else 16 if version < FIRST_ABI_WITH_SCOPES else 24
    _enforce(attributes[:size], _packed(rules, rights))
    return version


def _enforce(attributes: bytes, rules: Iterable[tuple[int, bytes]] = ()) -> None:
    """Hold this thread, and all it starts, to a ruleset; sets `no_new_privs`, which lasts."""
    ruleset = kernel.system_call(CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for kind, rule in rules:
            kernel.system_call(_ADD_RULE, ruleset, kind, rule, 0)
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        kernel.system_call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _packed(rules: Rules, handled: int) -> Iterator[tuple[int, bytes]]:
    """Each rule, as the kernel reads it, with its kind."""
    for places, rights, follow in (
        (rules.reads, _READ, True),
        (rules.executes, _READ | _EXECUTE, True),
        (rules.listed, _READ | _EXECUTE, False),
        (rules.writes, _WRITE, True),
        (rules.devices, _USE, True),
    ):
        for place in places:
            try:
                handle = _opened(place, follow=follow)
            except OSError:
                continue
            try:
                of_kind = rights if stat.S_ISDIR(os.fstat(handle).st_mode) else rights & _OF_FILES
                yield _PATH_BENEATH, struct.pack("=Qi", of_kind & handled, handle)
            finally:
                os.close(handle)
    for port in rules.connects_to:
        yield _NET_PORT, struct.pack("=QQ", _CONNECT_TCP, port)


def _opened(place: PathOrFd, *, follow: bool) -> int:
    if isinstance(place, int):
        return os.dup(place)
    if follow:
        return os.open(place, os.O_PATH | os.O_CLOEXEC)
    how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_NO_SYMLINKS)
    return kernel.system_call(kernel.OPENAT2, -1, os.fsencode(place), how, len(how))
