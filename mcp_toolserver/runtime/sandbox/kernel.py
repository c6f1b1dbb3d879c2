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
LANDLOCK_CREATE_RULESET = 444
LANDLOCK_RESTRICT_SELF = 446
LANDLOCK_CREATE_RULESET_VERSION = 1
LANDLOCK_SCOPE_SIGNAL = 2
FIRST_ABI_WITH_SCOPES = 6


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def prctl(option: int, value: int) -> None:
    """Raises: OSError: the kernel refused."""
    arguments = (ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
    if _libc().prctl(ctypes.c_int(option), *arguments):
        raise _last_error()


def landlock_abi() -> int:
    """The version of Landlock here; 0 when there is none."""
    version = _libc().syscall(
        ctypes.c_long(LANDLOCK_CREATE_RULESET),
        None,
        ctypes.c_size_t(0),
        ctypes.c_uint32(LANDLOCK_CREATE_RULESET_VERSION),
    )
    return max(version, 0)


def scope_signals() -> None:
    """From now on this process, and all it starts, can signal only each other.

    The ruleset restricts nothing else. It needs `no_new_privs`, which lasts: a set-user-id program such as
    sudo gains nothing here.

    Raises:
        OSError: this kernel has no signal scopes (Linux before 6.12, or Landlock off).
    """
    if landlock_abi() < FIRST_ABI_WITH_SCOPES:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    nothing_handled = struct.pack("=QQQ", 0, 0, LANDLOCK_SCOPE_SIGNAL)
    ruleset = _call(
        LANDLOCK_CREATE_RULESET,
        ctypes.c_char_p(nothing_handled),
        ctypes.c_size_t(len(nothing_handled)),
        ctypes.c_uint32(0),
    )
    try:
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        _call(LANDLOCK_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _call(number: int, *arguments: ctypes.c_char_p | ctypes.c_size_t | ctypes.c_int | ctypes.c_uint32) -> int:
    result: int = _libc().syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise _last_error()
    return result


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
