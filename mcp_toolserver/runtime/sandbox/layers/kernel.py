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

OPENAT2 = 437
"""The same number on every architecture."""

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


class Unsupported(OSError):
    """The kernel or the machine lacks a feature that a layer needs. The text names the feature, in
    English."""


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def system_call(number: int, *arguments: bytes | int | None) -> int:
    """What the kernel answers to system call `number`. Raises: OSError: it refused."""
    words = (ctypes.c_long(one) if isinstance(one, int) else one for one in (number, *arguments))
    return _checked(_libc().syscall(*words))


def prctl(option: int, value: int) -> None:
    """Raises: OSError: the kernel refused."""
    _checked(_libc().prctl(ctypes.c_int(option), *map(ctypes.c_ulong, (value, 0, 0, 0))))


def unshare(namespaces: int) -> None:
    """Leave the namespaces in `namespaces` for new ones. Raises: OSError: the kernel refused."""
    _checked(_libc().unshare(ctypes.c_int(namespaces)))


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
    _checked(_libc().setns(ctypes.c_int(namespace), ctypes.c_int(0)))


def mount(source: str | None, target: str, flags: int, *, kind: str | None = None, options: str = "") -> None:
    """Mount a file system of type `kind`, or else bind or change a mount, by `flags`.

    Raises:
        OSError: the kernel refused.
    """
    what, where, file_system, data = (
        None if text is None else os.fsencode(text) for text in (source, target, kind, options or None)
    )
    _checked(_libc().mount(what, where, file_system, ctypes.c_ulong(flags), data))


def keep_capabilities(kept: int) -> None:
    """Give up every capability but those in the bits of `kept`.

    With `no_new_privs` set before, no program that is started later has more, root or not.

    Raises:
        OSError: the kernel refused.
    """
    header = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION, 0))
    words = ctypes.create_string_buffer(struct.calcsize("=6I"))
    _checked(_libc().capget(header, words))
    effective, permitted, *_ = struct.unpack("=6I", words.raw)
    fewer = struct.pack("=6I", effective & kept, permitted & kept, 0, 0, 0, 0)
    _checked(_libc().capset(header, fewer))
