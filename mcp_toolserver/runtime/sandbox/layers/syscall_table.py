"""The numbers of the system calls that the filter names, for each machine it knows.

A pair is the number on x86_64 and the number on aarch64; None where that machine has no such call.
"""

from collections.abc import Mapping
from dataclasses import dataclass

Numbers = Mapping[str, tuple[int | None, int | None]]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A kind of processor, as the kernel names it to a filter."""

    audit: int
    column: int
    """Where its number stands in a pair."""
    x32: bool = False
    """Whether numbers with bit 30 mean the same calls with other argument sizes."""

    def number(self, numbers: tuple[int | None, int | None]) -> int | None:
        """The number here."""
        return numbers[self.column]


MACHINES: Mapping[str, Machine] = {
    "x86_64": Machine(audit=0xC000003E, column=0, x32=True),
    "aarch64": Machine(audit=0xC00000B7, column=1),
}

SECCOMP = (317, 277)

EXAMINED: Numbers = {
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

UNREADABLE: Numbers = {
    "clone3": (435, 435),
}
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

EXECUTES: Numbers = {
    "execve": (59, 221),
    "execveat": (322, 281),
}
