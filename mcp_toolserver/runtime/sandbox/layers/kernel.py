"""The few system calls that the standard library lacks."""

import ctypes
import errno
import os
import struct
from functools import cache

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

# The same numbers on every architecture that Landlock knows.
OPENAT2 = 437
LANDLOCK_CREATE_RULESET = 444
LANDLOCK_ADD_RULE = 445
LANDLOCK_RESTRICT_SELF = 446
LANDLOCK_CREATE_RULESET_VERSION = 1
LANDLOCK_CREATE_RULESET_ERRATA = 2
LANDLOCK_RULE_PATH_BENEATH = 1
LANDLOCK_RULE_NET_PORT = 2
LANDLOCK_SCOPE_SIGNAL = 2
FIRST_ABI_WITH_SCOPES = 6

RESOLVE_NO_SYMLINKS = 0x04

CLONE_NEWNS = 0x20000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x1, 0x2, 0x4, 0x8
MS_REMOUNT, MS_BIND, MS_REC, MS_SLAVE = 0x20, 0x1000, 0x4000, 0x80000

CAP_DAC_READ_SEARCH = 1 << 2
FILE_CAPABILITIES = 0b11111
"""Of root over other people's files: to change their owner, to pass over permission bits, to act as owner,
and to keep set-id bits."""

_CAPABILITY_VERSION = 0x20080522

Argument = ctypes.c_char_p | ctypes.c_size_t | ctypes.c_int | ctypes.c_uint32 | None


class Unsupported(OSError):
    """The kernel or the machine lacks a feature that a layer needs. The text names the feature, in
    English."""


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def system_call(number: int, *arguments: Argument) -> int:
    """What the kernel answers to system call `number`.

    Raises:
        OSError: it refused.
    """
    result: int = _libc().syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise _last_error()
    return result


def prctl(option: int, value: int) -> None:
    """Raises: OSError: the kernel refused."""
    arguments = (ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
    if _libc().prctl(ctypes.c_int(option), *arguments):
        raise _last_error()


def open_without_links(path: str) -> int:
    """A handle (`O_PATH`) on what lies at the absolute `path`, no part of which may be a symbolic link.

    Raises:
        OSError: ELOOP where a part is one.
    """
    how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, RESOLVE_NO_SYMLINKS)
    return system_call(
        OPENAT2,
        ctypes.c_int(-1),
        ctypes.c_char_p(os.fsencode(path)),
        ctypes.c_char_p(how),
        ctypes.c_size_t(len(how)),
    )


def unshare(namespaces: int) -> None:
    """Leave the namespaces in `namespaces` for new ones. Raises: OSError: the kernel refused."""
    if _libc().unshare(ctypes.c_int(namespaces)):
        raise _last_error()


def enter_user_namespace(others: int) -> None:
    """Move this process, which has one thread, to a new user namespace, and to new namespaces of the kinds in
    `others`, which belong to it: there it has every power over what is made with them. User and group keep
    their numbers; all others are unmapped.

    Raises:
        Unsupported: this user may make none.
        OSError: the kernel refused.
    """
    user, group = os.geteuid(), os.getegid()
    try:
        unshare(CLONE_NEWUSER | others)
    except PermissionError:
        raise Unsupported(errno.EPERM, "no user namespace can be made") from None
    _write_own("setgroups", "deny")
    _write_own("uid_map", f"{user} {user} 1")
    _write_own("gid_map", f"{group} {group} 1")


def _write_own(file: str, words: str) -> None:
    descriptor = os.open(f"/proc/self/{file}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, words.encode())
    finally:
        os.close(descriptor)


def setns(namespace: int) -> None:
    """Enter the namespace open as `namespace`. Raises: OSError: the kernel refused."""
    if _libc().setns(ctypes.c_int(namespace), ctypes.c_int(0)):
        raise _last_error()


def mount(source: str | None, target: str, flags: int, *, kind: str | None = None, options: str = "") -> None:
    """Mount a file system of type `kind`, or else bind or change a mount, by `flags`.

    Raises:
        OSError: the kernel refused.
    """
    what, where, file_system, data = (
        None if text is None else ctypes.c_char_p(os.fsencode(text))
        for text in (source, target, kind, options or None)
    )
    if _libc().mount(what, where, file_system, ctypes.c_ulong(flags), data):
        raise _last_error()


def keep_capabilities(kept: int) -> None:
    """Give up every capability but those in the bits of `kept`.

    With `no_new_privs` set before, no program that is started later has more, root or not.

    Raises:
        OSError: the kernel refused.
    """
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION, 0))
    words = ctypes.create_string_buffer(struct.calcsize("=6I"))
    if _libc().capget(header, words):
        raise _last_error()
    effective, permitted, *_ = struct.unpack("=6I", words.raw)
    fewer = struct.pack("=6I", effective & kept, permitted & kept, 0, 0, 0, 0)
    if _libc().capset(header, ctypes.create_string_buffer(fewer)):
        raise _last_error()


# --- Landlock --------------------------------------------------------------------------------------------


def landlock_abi() -> int:
    """The version of Landlock here; 0 when there is none."""
    return _landlock_number(LANDLOCK_CREATE_RULESET_VERSION)


def landlock_errata() -> int:
    """The mistakes of this version that the kernel says are mended, erratum N as bit N-1."""
    return _landlock_number(LANDLOCK_CREATE_RULESET_ERRATA)


def _landlock_number(what: int) -> int:
    try:
        return system_call(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(what))
    except OSError:
        return 0


def landlock_ruleset(attributes: bytes) -> int:
    """A new ruleset, as a descriptor.

    Raises:
        OSError: the kernel refused `attributes`.
    """
    return system_call(
        LANDLOCK_CREATE_RULESET,
        ctypes.c_char_p(attributes),
        ctypes.c_size_t(len(attributes)),
        ctypes.c_uint32(0),
    )


def landlock_allow_path(ruleset: int, place: int, rights: int) -> None:
    """Add to `ruleset`: these rights to what is open as `place`, and to all below it.

    Raises:
        OSError: the kernel refused.
    """
    rule = struct.pack("=Qi", rights, place)
    system_call(
        LANDLOCK_ADD_RULE,
        ctypes.c_int(ruleset),
        ctypes.c_int(LANDLOCK_RULE_PATH_BENEATH),
        ctypes.c_char_p(rule),
        ctypes.c_uint32(0),
    )


def landlock_allow_port(ruleset: int, port: int, rights: int) -> None:
    """Add to `ruleset`: these rights to a TCP port, of any address.

    Raises:
        OSError: the kernel refused.
    """
    system_call(
        LANDLOCK_ADD_RULE,
        ctypes.c_int(ruleset),
        ctypes.c_int(LANDLOCK_RULE_NET_PORT),
        ctypes.c_char_p(struct.pack("=QQ", rights, port)),
        ctypes.c_uint32(0),
    )


def landlock_enforce(ruleset: int) -> None:
    """Hold this thread, and all it starts, to `ruleset`; sets `no_new_privs`, which lasts.

    Raises:
        OSError: E2BIG when 16 rulesets hold it already.
    """
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    system_call(LANDLOCK_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))


def scope_signals() -> None:
    """From now on this process, and all it starts, can signal only each other.

    The ruleset restricts nothing else. It needs `no_new_privs`, which lasts: a set-user-id program such as
    sudo gains nothing here.

    Raises:
        OSError: this kernel has no signal scopes (Linux before 6.12, or Landlock off).
    """
    if landlock_abi() < FIRST_ABI_WITH_SCOPES:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    ruleset = landlock_ruleset(struct.pack("=QQQ", 0, 0, LANDLOCK_SCOPE_SIGNAL))
    try:
        landlock_enforce(ruleset)
    finally:
        os.close(ruleset)


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
