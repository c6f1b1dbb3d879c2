"""The filter over system calls: what it says, by running it here, and what it does, by running behind it."""

import errno
import struct
from collections.abc import Iterable, Mapping

import pytest

from mcp_toolserver.runtime.sandbox.layers import seccomp
from mcp_toolserver.runtime.sandbox.layers.kernel import Unsupported
from mcp_toolserver.runtime.sandbox.layers.process_locks import SYSTEM_HELPER_FILTER, command_filter
from mcp_toolserver.runtime.sandbox.layers.seccomp import (
    EXAMINED,
    EXECUTES,
    INET,
    INET6,
    MACHINES,
    METADATA,
    NAMED_MEMORY,
    NETLINK,
    POWERS,
    UNIX,
    UNREADABLE,
    Filter,
)
from tests.sandbox.locked import python

ALLOWED, KILLED = "allowed", "killed"
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
I386 = 0x40000003

READ_ONLY = command_filter("read-only", False, shared=True)
WRITING = command_filter("workspace-write", False)
NETWORKED = command_filter("workspace-write", True)
READING = command_filter("read-only", False)
DEGRADED = command_filter("workspace-write", False, shared=True)
SERVER = Filter(metadata=True)
FILTERS = {
    "ro": READ_ONLY,
    "ws": WRITING,
    "net": NETWORKED,
    "own-network": READING,
    "degraded": DEGRADED,
    "helper": SYSTEM_HELPER_FILTER,
    "server": SERVER,
}


def answer(program: bytes, audit: int, number: int, arguments: tuple[int, ...] = ()) -> str:
    """What the kernel would answer: run the instructions as it does."""
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("<IIQ6Q", number, audit, 0, *(one & (1 << 64) - 1 for one in padded))
    instructions = list(struct.iter_unpack("<HBBI", program))
    loaded, position = 0, 0
    while True:
        code, yes, no, value = instructions[position]
        position += 1
        match code:
            case 0x20:
                (loaded,) = struct.unpack_from("<I", data, value)
            case 0x54:
                loaded &= value
            case 0x15:
                position += yes if loaded == value else no
            case 0x35:
                position += yes if loaded >= value else no
            case 0x45:
                position += yes if loaded & value else no
            case 0x06:
                return spelt(value)
            case _:
                raise AssertionError(f"instruction {code:#x}")


def spelt(value: int) -> str:
    if value == 0x7FFF0000:
        return ALLOWED
    if value == 0x80000000:
        return KILLED
    assert value & 0xFFFF0000 == 0x00050000
    return errno.errorcode[value & 0xFFFF]


Called = tuple[tuple[int, int], tuple[int, ...]]
"""A call: its numbers on x86_64 and on aarch64, and its arguments."""


def wrong(cases: Iterable[tuple[str, Filter, Called, str]]) -> dict[tuple[str, str], str]:
    """What is answered otherwise than expected, by case and machine."""
    return {
        (case, machine): found
        for case, wanted, (numbers, arguments), expected in cases
        for machine, number in zip(AUDIT, numbers, strict=True)
        if (found := answer(seccomp.program(wanted, machine), AUDIT[machine], number, arguments)) != expected
    }


def call(x86_64: int, aarch64: int, *arguments: int) -> Called:
    return (x86_64, aarch64), arguments


def socket_of(family: int, kind: int = 1, protocol: int = 0) -> Called:
    return call(41, 198, family, kind, protocol)


def pair_of(family: int, kind: int) -> Called:
    return call(53, 199, family, kind, 0)


CLOEXEC = 0o2000000
FAST_OPEN = 0x20000000

EVERY_FILTER: Mapping[str, tuple[Called, str]] = {
    "read": (call(0, 63), ALLOWED),
    "openat": (call(257, 56), ALLOWED),
    "accept4": (call(288, 242), ALLOWED),
    "landlock-on-top": (call(446, 446), ALLOWED),
    "seccomp-on-top": (call(317, 277), ALLOWED),
    "fork": (call(56, 220, 0x01200011), ALLOWED),
    "thread": (call(56, 220, 0x003D0F00), ALLOWED),
    "clone-new-user": (call(56, 220, 0x10000011), "EPERM"),
    "clone-new-mounts": (call(56, 220, 0x00020011), "EPERM"),
    "clone-new-net": (call(56, 220, 0x40000011), "EPERM"),
    "clone3": (call(435, 435), "ENOSYS"),
    "unshare": (call(272, 97), "EPERM"),
    "ptrace": (call(101, 117), "EPERM"),
    "io_uring_setup": (call(425, 425), "EPERM"),
    "bpf": (call(321, 280), "EPERM"),
    "perf_event_open": (call(298, 241), "EPERM"),
    "userfaultfd": (call(323, 282), "EPERM"),
    "process_vm_readv": (call(310, 270), "EPERM"),
    "mount": (call(165, 40), "EPERM"),
    "open_by_handle_at": (call(304, 265), "EPERM"),
    "terminal-size": (call(16, 29, 0, 0x5413), ALLOWED),
    "type-into-terminal": (call(16, 29, 0, 0x5412), "EPERM"),
    "type-into-console": (call(16, 29, 0, 0x541C), "EPERM"),
    "type-with-high-bits": (call(16, 29, 0, 0x1_0000_5412), "EPERM"),
    "sendto": (call(44, 206, 3, 0, 0, 0x4000), ALLOWED),
    "sendto-fast-open": (call(44, 206, 3, 0, 0, FAST_OPEN | 0x4000), "EACCES"),
    "sendto-length-is-no-flag": (call(44, 206, 3, 0, FAST_OPEN, 0), ALLOWED),
    "sendmsg": (call(46, 211, 3, 0, 0), ALLOWED),
    "sendmsg-fast-open": (call(46, 211, 3, 0, FAST_OPEN), "EACCES"),
    "sendmmsg-fast-open": (call(307, 269, 3, 0, 1, FAST_OPEN), "EACCES"),
    "own-limits": (call(302, 261, 0, 7), ALLOWED),
    "limits-of-others": (call(302, 261, 1, 7), "EPERM"),
    "own-priority": (call(141, 140, 0, 0, 5), ALLOWED),
    "priority-of-others": (call(141, 140, 0, 1, 5), "EPERM"),
    "priority-of-a-user": (call(141, 140, 2, 0, 5), "EPERM"),
    "own-io-priority": (call(251, 30, 1, 0, 5), ALLOWED),
    "io-priority-of-others": (call(251, 30, 1, 1, 5), "EPERM"),
    "io-priority-of-a-user": (call(251, 30, 3, 0, 5), "EPERM"),
    "stream-pair": (pair_of(UNIX, 1 | CLOEXEC), ALLOWED),
    "sequenced-pair": (pair_of(UNIX, 5 | CLOEXEC), ALLOWED),
    "pair-of-another-family": (pair_of(30, 1), "EACCES"),
    "vsock": (socket_of(40), "EACCES"),
    "alg": (socket_of(38, 5), "EACCES"),
    "packet": (socket_of(17, 3), "EACCES"),
    "raw-icmp": (socket_of(INET, 3, 1), "EACCES"),
    "mptcp": (socket_of(INET, 1, 262), "EACCES"),
    "mptcp-over-6": (socket_of(INET6, 1, 262), "EACCES"),
    "smc": (socket_of(INET, 1, 256), "EACCES"),
    "netlink-audit": (socket_of(NETLINK, 3, 9), "EACCES"),
}


def test_every_filter_answers_these_calls_the_same() -> None:
    cases = (
        (f"{case} in {name}", wanted, *each)
        for name, wanted in FILTERS.items()
        for case, each in EVERY_FILTER.items()
    )
    assert wrong(cases) == {}


SOME_FILTERS: Mapping[str, tuple[Filter, Called, str]] = {
    "unix-in-ro": (READ_ONLY, socket_of(UNIX), "EACCES"),
    "unix-in-ws": (WRITING, socket_of(UNIX, 2 | CLOEXEC), ALLOWED),
    "tcp-in-ws": (WRITING, socket_of(INET), ALLOWED),
    "unix-in-net-ro": (command_filter("read-only", True), socket_of(UNIX), "EACCES"),
    "unix-in-own-network": (READING, socket_of(UNIX), ALLOWED),
    "tcp-in-own-network": (READING, socket_of(INET), ALLOWED),
    "routes-in-own-network": (READING, socket_of(NETLINK, 3, 0), ALLOWED),
    "connect-in-own-network": (READING, call(42, 203), ALLOWED),
    "unix-in-degraded-ws": (DEGRADED, socket_of(UNIX), ALLOWED),
    "tcp-in-degraded-ws": (DEGRADED, socket_of(INET), "EACCES"),
    "routes-in-degraded-ws": (DEGRADED, socket_of(NETLINK, 3, 0), "EACCES"),
    "unix-in-helper": (SYSTEM_HELPER_FILTER, socket_of(UNIX), "EACCES"),
    "tcp-in-helper": (SYSTEM_HELPER_FILTER, socket_of(INET), "EACCES"),
    "connect-in-helper": (SYSTEM_HELPER_FILTER, call(42, 203), "EACCES"),
    "tcp-in-net": (NETWORKED, socket_of(INET, 1 | CLOEXEC, 6), ALLOWED),
    "udp-in-net": (NETWORKED, socket_of(INET6, 2, 17), ALLOWED),
    "routes-in-net": (NETWORKED, socket_of(NETLINK, 3 | CLOEXEC, 0), ALLOWED),
    "routes-in-ws": (WRITING, socket_of(NETLINK, 3, 0), ALLOWED),
    "datagram-pair-in-ro": (READ_ONLY, pair_of(UNIX, 2), "EACCES"),
    "raw-pair-in-ro": (READ_ONLY, pair_of(UNIX, 3), "EACCES"),
    "datagram-pair-in-ws": (WRITING, pair_of(UNIX, 2), ALLOWED),
    "connect-in-ro": (READ_ONLY, call(42, 203), "EACCES"),
    "connect-in-ws": (WRITING, call(42, 203), ALLOWED),
    "fchmod-in-ro": (READ_ONLY, call(91, 52), "EPERM"),
    "utimensat-in-ro": (READ_ONLY, call(280, 88), "EPERM"),
    "chattr-in-ro": (READ_ONLY, call(16, 29, 0, 0x40086602), "EPERM"),
    "fsxattr-in-ro": (READ_ONLY, call(16, 29, 0, 0x401C5820), "EPERM"),
    "shmget-in-ro": (READ_ONLY, call(29, 194), "EPERM"),
    "msgget-in-ro": (READ_ONLY, call(68, 186), "EPERM"),
    "mq_open-in-ro": (READ_ONLY, call(240, 180), "EPERM"),
    "shmat-in-ro": (READ_ONLY, call(30, 196), "EPERM"),
    "execve-in-server": (SERVER, call(59, 221), "EPERM"),
    "execveat-in-server": (SERVER, call(322, 281), "EPERM"),
}


def test_a_filter_leaves_possible_what_it_says() -> None:
    assert wrong((case, *each) for case, each in SOME_FILTERS.items()) == {}


def test_a_call_made_the_way_of_another_machine_is_killed() -> None:
    for machine in AUDIT:
        other = next(audit for name, audit in AUDIT.items() if name != machine)
        program = seccomp.program(NETWORKED, machine)
        for number in (0, 59, 221, 1 << 20):
            assert answer(program, other, number) == KILLED
            assert answer(program, I386, number) == KILLED


def test_x32_calls_do_not_exist() -> None:
    program = seccomp.program(NETWORKED, "x86_64")
    for number in (0, 41, 59, 521):
        assert answer(program, AUDIT["x86_64"], number | 0x40000000) == "ENOSYS"


@pytest.mark.parametrize("machine", AUDIT)
@pytest.mark.parametrize("wanted", [READ_ONLY, NETWORKED, Filter()], ids=["ro", "net", "strictest"])
def test_what_no_list_names_is_allowed_and_the_rest_is_not(wanted: Filter, machine: str) -> None:
    """Every number there is: a jump that is off by one shows here."""
    column, _ = MACHINES[machine]
    refused = [POWERS]
    refused += [] if wanted.metadata else [METADATA]
    refused += [] if wanted.named_memory else [NAMED_MEMORY]
    refused += [] if wanted.executes else [EXECUTES]
    expected = {
        **{pair[column]: "EPERM" for table in refused for pair in table.values()},
        **{pair[column]: "ENOSYS" for pair in UNREADABLE.values()},
    }
    examined = {pair[column] for pair in EXAMINED.values()}
    program = seccomp.program(wanted, machine)
    for number in set(range(1024)) - examined:
        assert answer(program, AUDIT[machine], number) == expected.get(number, ALLOWED), number


def test_an_unknown_machine_gets_no_filter() -> None:
    for machine in ("riscv64", "i686", "aarch64_be", ""):
        with pytest.raises(Unsupported):
            seccomp.program(READ_ONLY, machine)


LATE_FILTER = """
import sys, threading
sys.path.insert(0, sys.argv[1])
import socket
from mcp_toolserver.runtime.sandbox.layers import seccomp
go, tried = threading.Event(), []
def attempt():
    go.wait()
    try:
        socket.socket().close()
        tried.append("done")
    except PermissionError:
        tried.append("refused")
socket.socket().close()
thread = threading.Thread(target=attempt)
thread.start()
seccomp.load(seccomp.program(seccomp.Filter()))
go.set()
thread.join()
print(*tried)
"""


def test_a_thread_that_ran_before_is_held_as_well() -> None:
    assert python(LATE_FILTER).split() == ["refused"]
