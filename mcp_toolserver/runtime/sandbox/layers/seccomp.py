"""A filter over system calls: classic BPF, put together here, for ourselves or for `bwrap --seccomp`.

It closes what Landlock leaves open: sockets of other kinds than TCP, connections opened by sending, changes
of what a file is rather than of what it holds, and the calls that reach other processes or deep into the
kernel. A filter holds the process and all it starts, for good.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from mcp_toolserver.runtime.sandbox.layers import kernel

UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
"""Families of sockets, as the kernel numbers them."""


@dataclass(frozen=True, kw_only=True)
class Filter:
    """What stays possible. The rest of `program`'s list is refused in every filter."""

    families: frozenset[int] = frozenset()
    """Of new sockets; a connected pair within UNIX is always possible."""
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


MACHINES: Mapping[str, tuple[int, int]] = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""For each kind of processor, where its numbers of system calls stand in a pair, and its name to a filter."""

Numbers = Mapping[str, tuple[int | None, int | None]]
"""By the name of a system call its number on each; None where that machine has no such call."""

_SET_FILTER, _EVERY_THREAD = 1, 1
_PR_SET_SECCOMP, _FILTER_BY_PRCTL = 22, 2

_X32_BIT = 0x40000000
"""Numbers with it mean the same calls of x86_64 with other argument sizes."""

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


@cache
def program(wanted: Filter, machine: str | None = None) -> bytes:
    """The filter for `machine`, or for this one. Raises: Unsupported: its system calls are not known here."""
    column, audit = _machine(os.uname().machine if machine is None else machine)
    forbidden = {
        **POWERS,
        **({} if wanted.metadata else METADATA),
        **({} if wanted.named_memory else NAMED_MEMORY),
        **({} if wanted.executes else EXECUTES),
    }
    return b"".join(
        (
            *(_LOAD_AUDIT, _instruction(_EQUAL, audit, yes=1), _KILL, _LOAD_NUMBER),
            # Only x86_64 has another way to make calls.
            *(() if column else (_instruction(_AT_LEAST, _X32_BIT, no=1), _refuse(errno.ENOSYS))),
            # A block loads over the number, so it must decide.
            *(
                _only_if(b"", EXAMINED[call][column], block + _ALLOW)
                for call, block in _blocks(wanted).items()
            ),
            _never(column, errno.ENOSYS, UNREADABLE),
            _never(column, errno.EPERM, forbidden),
            _ALLOW,
        )
    )


def load(instructions: bytes) -> None:
    """Hold this process, every thread of it and all it starts to a filter; sets `no_new_privs`.

    Raises:
        Unsupported, OSError: this kernel takes no filters, or refused.
    """
    column, _ = _machine(os.uname().machine)
    code = ctypes.create_string_buffer(instructions, len(instructions))
    described = struct.pack("@HP", len(instructions) // _INSTRUCTION.size, ctypes.addressof(code))
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    try:
        unlike = kernel.system_call(SECCOMP[column], _SET_FILTER, _EVERY_THREAD, described)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOSYS):
            raise kernel.Unsupported(error.errno, "This kernel takes no filter for system calls") from None
        raise
    if unlike:
        raise OSError(errno.ESRCH, "A thread of this process has a filter of its own")


def missing_filter() -> str:
    """Why there are no filters for system calls here; empty when there are.

    The kernel is asked for a filter that lies nowhere. One that takes filters finds nothing there (EFAULT);
    one that takes none does not look.
    """
    name = os.uname().machine
    if name not in MACHINES:
        return f"the system calls of this kind of machine ({name}) are not known"
    number = SECCOMP[MACHINES[name][0]]
    asked = (
        lambda: kernel.system_call(number, _SET_FILTER, 0, None),
        lambda: kernel.prctl(_PR_SET_SECCOMP, _FILTER_BY_PRCTL),
    )
    return "" if all(map(_faults, asked)) else "this kernel takes no filters for system calls"


def _faults(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except OSError as error:
        return error.errno == errno.EFAULT
    return False


def as_descriptor(instructions: bytes) -> int:
    """An anonymous file that holds a filter, at its start and closed by exec.

    Whoever reads it moves its offset, so each reader needs one of its own.
    """
    file = os.memfd_create("filter")
    os.write(file, instructions)
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _machine(name: str) -> tuple[int, int]:
    machine = MACHINES.get(name)
    if machine is None or struct.calcsize("P") != 8:
        raise kernel.Unsupported(
            errno.ENOSYS, f"The system calls of this kind of machine ({name}) are not known"
        )
    return machine


# --- what the filter says --------------------------------------------------------------------------------


def _blocks(wanted: Filter) -> dict[str, bytes]:
    """For each examined call, what is looked at. A block that says nothing allows."""
    return {
        **({} if wanted.connects else {"connect": _refuse(errno.EACCES)}),
        "socket": _sockets(tuple(sorted(wanted.families)), datagrams=wanted.datagrams),
        # A datagram socket of a pair still sends to any address, so only the other kinds pass.
        "socketpair": _if_not(_argument(0), (UNIX,), errno.EACCES)
        + (b"" if UNIX in wanted.families else _if_not(_kind(), (_STREAM, _SEQUENCED), errno.EACCES)),
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
    netlink = _if_not(_argument(2), (_ROUTE,), errno.EACCES) + _ALLOW
    return (
        _if_not(_argument(0), families, errno.EACCES)
        + _only_if(_argument(0), NETLINK, netlink)
        + _if_not(_kind(), kinds, errno.EACCES)
        + _if(_argument(2), (_SMC, _MPTCP), errno.EACCES)
    )


# --- how it is said --------------------------------------------------------------------------------------

_INSTRUCTION = struct.Struct("=HBBI")
_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ERROR = 0x00050000


def _instruction(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """One instruction. The distances of its jumps are bytes; a longer one does not pack."""
    return _INSTRUCTION.pack(code, yes, no, value)


_LOAD_NUMBER, _LOAD_AUDIT = _instruction(_LOAD, 0), _instruction(_LOAD, 4)
_ALLOW, _KILL = _instruction(_RETURN, 0x7FFF0000), _instruction(_RETURN, 0x80000000)


def _never(column: int, error: int, numbers: Numbers) -> bytes:
    return _if(b"", [number for pair in numbers.values() if (number := pair[column]) is not None], error)


def _argument(index: int) -> bytes:
    """Load the lower half of an argument, which is all that the kernel itself reads of an `int`."""
    return _instruction(_LOAD, 16 + 8 * index)


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


def _refuse(error: int) -> bytes:
    return _instruction(_RETURN, _ERROR | error)


# --- the numbers of system calls -------------------------------------------------------------------------

SECCOMP = (317, 277)

EXAMINED: Mapping[str, tuple[int, int]] = {
    "clone": (56, 220),
    "connect": (42, 203),
    "ioctl": (16, 29),
    "ioprio_set": (251, 30),
    "prlimit64": (302, 261),
    "sendmmsg": (307, 269),
    "sendmsg": (46, 211),
    "sendto": (44, 206),
    "setpriority": (141, 140),
    "socket": (41, 198),
    "socketpair": (53, 199),
}
"""Allowed or not by what they are called with."""

UNREADABLE: Numbers = {"clone3": (435, 435)}
"""Their arguments lie behind a pointer, where no filter sees them; programs fall back to an older call."""

POWERS: Numbers = {
    # Other processes.
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    # Ways around the system calls that are filtered, or deep into the kernel.
    "bpf": (321, 280),
    "fanotify_init": (300, 262),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "open_by_handle_at": (304, 265),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    # Keys.
    "add_key": (248, 217),
    "keyctl": (250, 219),
    "request_key": (249, 218),
    # Mounts and namespaces.
    "chroot": (161, 51),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "pivot_root": (155, 41),
    "setns": (308, 268),
    "umount2": (166, 39),
    "unshare": (272, 97),
    # The machine.
    "acct": (163, 89),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "init_module": (175, 105),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "vhangup": (153, 58),
}
"""No command and no server has business with them."""

METADATA: Numbers = {
    "chmod": (90, None),
    "chown": (92, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "file_setattr": (469, 469),
    "fremovexattr": (199, 16),
    "fsetxattr": (190, 7),
    "futimesat": (261, None),
    "lchown": (94, None),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "removexattr": (197, 14),
    "removexattrat": (466, 466),
    "setxattr": (188, 5),
    "setxattrat": (463, 463),
    "utime": (132, None),
    "utimensat": (280, 88),
    "utimes": (235, None),
}
"""What changes a file that nobody opened for writing."""

NAMED_MEMORY: Numbers = {
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmget": (29, 194),
}
"""Shared memory, queues and semaphores that every process of a user finds, in a namespace of their own rather
than among files, and that outlive their makers. Landlock lets a queue be made and only then not be opened."""

EXECUTES: Numbers = {"execve": (59, 221), "execveat": (322, 281)}
