"""A filter over system calls: classic BPF, put together here, for ourselves or for `bwrap --seccomp`.

It closes what Landlock leaves open: sockets of other kinds than TCP, connections opened by sending, changes
of what a file is rather than of what it holds, and the calls that reach other processes or deep into the
kernel. A filter holds the process and all it starts, for good.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from mcp_toolserver.runtime.sandbox.layers import kernel
from mcp_toolserver.runtime.sandbox.layers.syscall_table import (
    EXAMINED,
    EXECUTES,
    MACHINES,
    METADATA,
    NAMED_MEMORY,
    POWERS,
    SECCOMP,
    UNREADABLE,
    Machine,
    Numbers,
)

UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
"""Families of sockets, as the kernel numbers them."""


@dataclass(frozen=True, kw_only=True)
class Filter:
    """What stays possible. The rest of `program`'s list is refused in every filter."""

    families: frozenset[int] | None = frozenset()
    """Of new sockets. None leaves socket(2) alone; a connected pair within UNIX is always possible."""
    datagrams: bool = True
    """Whether sockets of these families may send datagrams."""
    metadata: bool = False
    """Whether modes, owners, times and attributes of files can be changed."""
    named_memory: bool = False
    """Whether System V memory, queues and semaphores and POSIX queues can be used. They are shared with every
    process of the user, unless the IPC namespace is a new one."""
    executes: bool = False
    """Whether a program can be started."""
    connects: bool = False
    """Whether connect(2) can be called."""


_INSTRUCTION = struct.Struct("=HBBI")
_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER_OFFSET, _AUDIT_OFFSET, _ARGUMENTS_OFFSET = 0, 4, 16
_X32_BIT = 0x40000000

_NEW_NAMESPACES = 0x7E020000
_MSG_FASTOPEN = 0x20000000
_STREAM, _DATAGRAM, _SEQUENCED = 1, 2, 5
_SOCKET_TYPE = 0xF
_ROUTE = 0
_SMC, _MPTCP = 256, 262
_PRIORITY_OF_USER, _IO_PRIORITY_OF_USER = 2, 3

_TYPE_FOR_ME = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: they type into a terminal."""

_METADATA_COMMANDS = (
    *(0x40086602, 0x40046602, 0x401C5820),  # flags, as chattr sets them
    *(0x40087602, 0x40047602),  # generation
    0x40806685,  # verity: never to be written again
    0x800C6613,  # encryption of a folder
    *(0x50009401, 0x5000940E, 0x5000940F, 0x50009417, 0x50009418, 0x5000943F),  # btrfs: subvolumes made, gone
    *(0x40089413, 0x4008941A, 0xC0C89425),  # btrfs: what a subvolume is
)


def program(wanted: Filter, machine: str | None = None) -> bytes:
    """The filter for `machine`, or for this one.

    Raises:
        Unsupported: its system calls are not known here.
    """
    return _program(wanted, os.uname().machine if machine is None else machine)


def load(instructions: bytes) -> None:
    """Hold this process, every thread of it and all it starts to a filter; sets `no_new_privs`.

    Raises:
        Unsupported: this kernel takes no filters.
        OSError: the kernel refused.
    """
    numbers = SECCOMP[_machine(os.uname().machine).column]
    code = ctypes.create_string_buffer(instructions, len(instructions))
    described = struct.pack("@HP", len(instructions) // _INSTRUCTION.size, ctypes.addressof(code))
    set_filter, every_thread = ctypes.c_uint32(1), ctypes.c_uint32(1)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    try:
        unlike = kernel.system_call(numbers, set_filter, every_thread, ctypes.c_char_p(described))
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOSYS):
            raise kernel.Unsupported(error.errno, "This kernel takes no filter for system calls") from None
        raise
    if unlike:
        raise OSError(errno.ESRCH, "A thread of this process has a filter of its own")


def as_descriptor(instructions: bytes) -> int:
    """An anonymous file that holds a filter, at its start and closed by exec.

    Whoever reads it moves its offset, so each reader needs one of its own.
    """
    file = os.memfd_create("filter")
    os.write(file, instructions)
    os.lseek(file, 0, os.SEEK_SET)
    return file


# --- what the filter says --------------------------------------------------------------------------------


@cache
def _program(wanted: Filter, name: str) -> bytes:
    machine = _machine(name)
    unexamined = {"connect"} if wanted.connects else set[str]()
    if wanted.families is None:
        unexamined |= {"socket", "socketpair"}
    blocks = _blocks(wanted)
    return b"".join(
        (
            _entry(machine),
            *(
                _when(machine.number(EXAMINED[call]), block)
                for call, block in blocks.items()
                if call not in unexamined
            ),
            _never(machine, errno.ENOSYS, UNREADABLE),
            _never(machine, errno.EPERM, POWERS),
            *(() if wanted.metadata else (_never(machine, errno.EPERM, METADATA),)),
            *(() if wanted.named_memory else (_never(machine, errno.EPERM, NAMED_MEMORY),)),
            *(() if wanted.executes else (_never(machine, errno.EPERM, EXECUTES),)),
            _return(_ALLOW),
        )
    )


def _machine(name: str) -> Machine:
    machine = MACHINES.get(name)
    if machine is None or struct.calcsize("P") != 8:
        raise kernel.Unsupported(
            errno.ENOSYS, f"The system calls of this kind of machine ({name}) are not known"
        )
    return machine


def _blocks(wanted: Filter) -> dict[str, bytes]:
    """For each examined call, what is looked at. A block that says nothing allows."""
    return {
        "socket": _sockets(tuple(sorted(wanted.families or ())), datagrams=wanted.datagrams),
        # A datagram socket of a pair still sends to any address, so only the other kinds pass.
        "socketpair": _if_not(_argument(0), (UNIX,), errno.EACCES)
        + (b"" if UNIX in (wanted.families or ()) else _if_not(_kind(), (_STREAM, _SEQUENCED), errno.EACCES)),
        "connect": _refuse(errno.EACCES),
        # It connects and sends in one call, past every check of connect(2).
        "sendto": _if_any_bit(_argument(3), _MSG_FASTOPEN, errno.EACCES),
        "sendmsg": _if_any_bit(_argument(2), _MSG_FASTOPEN, errno.EACCES),
        "sendmmsg": _if_any_bit(_argument(3), _MSG_FASTOPEN, errno.EACCES),
        "clone": _if_any_bit(_argument(0), _NEW_NAMESPACES, errno.EPERM),
        "ioctl": _if(
            _argument(1), _TYPE_FOR_ME + (() if wanted.metadata else _METADATA_COMMANDS), errno.EPERM
        ),
        # Zero is the caller, except where a whole user is meant.
        "prlimit64": _if_not(_argument(0), (0,), errno.EPERM),
        "setpriority": _if_not(_argument(1), (0,), errno.EPERM)
        + _if(_argument(0), (_PRIORITY_OF_USER,), errno.EPERM),
        "ioprio_set": _if_not(_argument(1), (0,), errno.EPERM)
        + _if(_argument(0), (_IO_PRIORITY_OF_USER,), errno.EPERM),
    }


def _sockets(families: Sequence[int], *, datagrams: bool) -> bytes:
    """Of netlink, only the tables of routes and addresses, which resolvers ask; of the others no raw packets,
    and neither of the protocols that speak TCP without being it."""
    if not families:
        return _refuse(errno.EACCES)
    kinds = (_STREAM, _DATAGRAM, _SEQUENCED) if datagrams else (_STREAM,)
    netlink = _if_not(_argument(2), (_ROUTE,), errno.EACCES) + _return(_ALLOW)
    return (
        _if_not(_argument(0), families, errno.EACCES)
        + _only_if(_argument(0), NETLINK, netlink)
        + _if_not(_kind(), kinds, errno.EACCES)
        + _if(_argument(2), (_SMC, _MPTCP), errno.EACCES)
    )


# --- how it is said --------------------------------------------------------------------------------------


def _entry(machine: Machine) -> bytes:
    """Only calls made the way of this machine go on, with their number loaded."""
    known = _load(_AUDIT_OFFSET) + _instruction(_EQUAL, machine.audit, yes=1) + _return(_KILL)
    number = _load(_NUMBER_OFFSET)
    if not machine.x32:
        return known + number
    return known + number + _instruction(_AT_LEAST, _X32_BIT, no=1) + _refuse(errno.ENOSYS)


def _when(number: int | None, block: bytes) -> bytes:
    """Look closer at one call. The block loads over its number, so it must decide."""
    if number is None:
        return b""
    return _only_if(b"", number, block + _return(_ALLOW))


def _never(machine: Machine, error: int, numbers: Numbers) -> bytes:
    found = (machine.number(pair) for pair in numbers.values())
    return _if(b"", [number for number in found if number is not None], error)


def _argument(index: int) -> bytes:
    """Load the lower half of an argument, which is all that the kernel itself reads of an `int`."""
    return _load(_ARGUMENTS_OFFSET + 8 * index)


def _kind() -> bytes:
    """Load the type of a new socket, without the flags that come with it."""
    return _argument(1) + _instruction(_AND, _SOCKET_TYPE)


def _if(load: bytes, values: Sequence[int], error: int) -> bytes:
    """Refuse what is one of `values`."""
    *others, last = values
    tests = [_instruction(_EQUAL, value, yes=len(others) - i) for i, value in enumerate(others)]
    return b"".join((load, *tests, _instruction(_EQUAL, last, no=1), _refuse(error)))


def _if_not(load: bytes, values: Sequence[int], error: int) -> bytes:
    """Refuse what is none of `values`."""
    tests = [_instruction(_EQUAL, value, yes=len(values) - i) for i, value in enumerate(values)]
    return b"".join((load, *tests, _refuse(error)))


def _if_any_bit(load: bytes, bits: int, error: int) -> bytes:
    return load + _instruction(_ANY_BIT, bits, no=1) + _refuse(error)


def _only_if(load: bytes, value: int, block: bytes) -> bytes:
    return load + _instruction(_EQUAL, value, no=len(block) // _INSTRUCTION.size) + block


def _load(offset: int) -> bytes:
    return _instruction(_LOAD, offset)


def _refuse(error: int) -> bytes:
    return _return(_ERROR | error)


def _return(answer: int) -> bytes:
    return _instruction(_RETURN, answer)


def _instruction(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """One instruction. The distances of its jumps are bytes; a longer one does not pack."""
    return _INSTRUCTION.pack(code, yes, no, value)
