"""The filter over system calls: what it says, by running it here, and what it does, by running behind it."""

import errno
import struct
from pathlib import Path

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
from tests.sandbox.attempts import python
from tests.support.cases import table

ALLOWED, KILLED = "allowed", "killed"
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
I386 = 0x40000003

READ_ONLY = command_filter("read-only", False, shared=True)
NETWORKED = command_filter("workspace-write", True)
FILTERS = {
    "ro": READ_ONLY,
    "ws": command_filter("workspace-write", False),
    "net": NETWORKED,
    "net-ro": command_filter("read-only", True),
    "own-network": command_filter("read-only", False),
    "degraded": command_filter("workspace-write", False, shared=True),
    "helper": SYSTEM_HELPER_FILTER,
    "server": Filter(metadata=True),
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


CALLS = {"socket": "41 198", "socketpair": "53 199"}
ARGUMENTS = {
    "UNIX": UNIX,
    "INET": INET,
    "INET6": INET6,
    "NETLINK": NETLINK,
    "CLOEXEC": 1 << 19,
    "FAST_OPEN": 1 << 29,
}


def wrong(*, of_every_filter: bool) -> dict[tuple[str, str, str], str]:
    """What is answered otherwise than the table says, by call, filter and machine."""
    found: dict[tuple[str, str, str], str] = {}
    for name, tried, numbers, given, expected in table(Path(__file__).with_name("seccomp_calls.txt")):
        if (tried == "every") is not of_every_filter:
            continue
        arguments = tuple(
            sum(ARGUMENTS.get(word) or int(word, 0) for word in argument.split("|"))
            for argument in given.split()
        )
        for one in FILTERS if tried == "every" else (tried,):
            for machine, number in zip(AUDIT, CALLS.get(numbers, numbers).split(), strict=True):
                said = answer(seccomp.program(FILTERS[one], machine), AUDIT[machine], int(number), arguments)
                if said != expected:
                    found[name, one, machine] = said
    return found


def test_every_filter_answers_these_calls_the_same() -> None:
    assert wrong(of_every_filter=True) == {}


def test_a_filter_leaves_possible_what_it_says() -> None:
    assert wrong(of_every_filter=False) == {}


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
import socket, threading
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
