"""The filter over system calls, run here and behind it; servers, helpers, commands and the proxy behind
their locks: what each cannot do, and what it still can.
"""

import errno
import functools
import os
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mcp_toolserver.runtime.sandbox.layers import landlock, seccomp
from mcp_toolserver.runtime.sandbox.layers.kernel import Unsupported
from mcp_toolserver.runtime.sandbox.layers.process_locks import (
    SYSTEM_HELPER_FILTER,
    LockError,
    command_filter,
    everything_but,
    system_places,
)
from mcp_toolserver.runtime.sandbox.layers.seccomp import (
    EXAMINED,
    EXECUTES,
    INET,
    INET6,
    MACHINES,
    NAMED_MEMORY,
    NETLINK,
    POWERS,
    UNIX,
    UNREADABLE,
    Filter,
)
from tests.sandbox import attempts
from tests.sandbox.attempts import METADATA, OUTSIDE_WRITES, USERS, outcomes, python
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
    refused += [] if wanted.metadata else [seccomp.METADATA]
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


BY_USER = [USERS[0], *(pytest.param(user, marks=pytest.mark.long) for user in USERS[1:])]
"""Root has the most that a lock must stop."""

REFUSED = ("EACCES", "EPERM", "EXDEV")

LOCKS: Mapping[str, dict[str, Any]] = {
    "server-ro": {"name": "server", "mode": "read-only"},
    "server-ws": {"name": "server", "mode": "workspace-write"},
    "server-net": {"name": "server", "mode": "read-only", "network": "fetch"},
    "command-ro": {"name": "command"},
    "command-ws": {"name": "command", "writable": True},
    "command-net": {"name": "command", "writable": True, "network": True},
    "helper": {"name": "helper"},
    "proxy-net": {"name": "proxy"},
}
EVERY = tuple(LOCKS)
SERVERS = ("server-ro", "server-ws", "server-net")
COMMANDS = ("command-ro", "command-ws", "command-net")
UNNETWORKED = tuple(lock for lock in EVERY if not lock.endswith("-net"))
OTHERS = tuple(lock for lock in EVERY if lock != "proxy-net")
READING = ("server-ro", "server-net", "command-ro", "helper", "proxy-net")

Table = Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]
"""By case: what is tried, and behind which locks."""

FORBIDDEN: Table = {
    "NETIPC01": (("tcp",), UNNETWORKED),
    "NETIPC03-udp": (("udp", "listen_unbound"), UNNETWORKED),
    "NETIPC07-routes": (("netlink",), UNNETWORKED),
    "NETIPC08": (("unix_stream",), (*SERVERS, "command-ro", "helper", "proxy-net")),
    "NETIPC08-abstract": (("abstract",), EVERY),
    "NETIPC10": (("signal_outsider",), EVERY),
    "NETIPC12": (("shared_memory",), EVERY),
    "NETIPC13": (("dev_shm",), EVERY),
    "PROC02": (("environ_of_outsider", "memory_of_outsider"), EVERY),
    "PROC09": (("core_pattern",), EVERY),
    "PROC12": (("device_file",), EVERY),
    "PROC12-disk": (("list_devices",), EVERY),
    "outside-is-not-written": ((*OUTSIDE_WRITES, "write_hidden"), EVERY),
    "workspace-is-not-written": (("write_workspace", "truncate_workspace"), READING),
    "metadata-is-not-changed": (METADATA, READING),
    "programs-are-not-started": (("execute", "execute_handle"), (*SERVERS, "proxy-net")),
    "outside-is-not-read": (("read_outside", "list_outside"), (*SERVERS, "helper", "proxy-net")),
    "hidden-is-not-read": (("read_hidden", "list_hidden"), EVERY),
    "other-programs-are-not-started": (("execute",), ("helper",)),
}
"""What fails. `seccomp_calls.txt` and `test_escape_ipc.py` have the calls that every filter refuses."""

STILL: Table = {
    "workspace-is-read": (("read_workspace", "dev_null"), OTHERS),
    "workspace-is-written": (
        ("write_workspace", "truncate_workspace"),
        ("server-ws", "command-ws", "command-net"),
    ),
    "private-is-written": (("write_private", "move_between_folders"), (*SERVERS, *COMMANDS)),
    "metadata-is-changed": (METADATA, ("server-ws", "command-ws", "command-net")),
    "network-is-used": (("tcp", "udp", "netlink"), ("server-net", "command-net", "proxy-net")),
    "names-are-looked-up": (("look_up",), ("proxy-net",)),
    "unix-sockets-are-used": (("unix_stream",), ("command-ws",)),
    "pairs": (("stream_pair",), EVERY),
    "programs-are-started": (("execute", "execute_handle"), COMMANDS),
    "helper-becomes-its-program": (("read_program",), ("helper",)),
    "outside-is-read": (("read_outside", "list_outside"), COMMANDS),
    # Nor does what it starts.
    "has-no-powers-of-root": (("no_powers", "no_powers_after_exec"), COMMANDS),
}

ATTEMPTS = tuple(
    dict.fromkeys(name for table in (FORBIDDEN, STILL) for names, _ in table.values() for name in names)
)


@functools.cache
def free(user: str) -> dict[str, str]:
    return outcomes(user, None, ATTEMPTS)


@functools.cache
def held(user: str, lock: str) -> dict[str, str]:
    worker = [name for name, locks in tried(user, FORBIDDEN) if lock in locks and lock in SERVERS]
    return outcomes(user, LOCKS[lock], ATTEMPTS, worker=worker)


def tried(user: str, table: Table) -> list[tuple[str, tuple[str, ...]]]:
    """Each attempt that the user can make, and the locks that the table names for it."""
    return [
        (name, locks)
        for names, locks in table.values()
        for name in names
        if user == "root" or name not in attempts.NEEDS_ROOT
    ]


@pytest.mark.parametrize("user", BY_USER)
def test_what_a_lock_forbids_fails(user: str) -> None:
    """A server tries it in the thread that was locked and in one that started later."""
    came = {
        f"{name}, {lock}": held(user, lock)[name]
        for attempt, locks in tried(user, FORBIDDEN)
        for lock in locks
        for name in ([attempt, f"{attempt} in a worker"] if lock in SERVERS else [attempt])
    }
    assert {case: what for case, what in came.items() if what not in REFUSED} == {}
    control = {name: free(user)[name] for name, _ in tried(user, FORBIDDEN)}
    assert {name: what for name, what in control.items() if what != attempts.DONE} == {}


@pytest.mark.parametrize("user", BY_USER)
def test_what_a_lock_leaves_works(user: str) -> None:
    came = {f"{name}, {lock}": held(user, lock)[name] for name, locks in tried(user, STILL) for lock in locks}
    assert {case: what for case, what in came.items() if what != attempts.DONE} == {}
    if user == "root":
        assert attempts.DONE not in {free(user)[name] for name in ("no_powers", "no_powers_after_exec")}


@pytest.mark.parametrize("user", BY_USER)
def test_a_lock_leaves_files_as_they_were(user: str) -> None:
    """Neither content, name, mode, owner, time nor attributes."""
    assert {lock: held(user, lock)["outside"] for lock in EVERY} == dict.fromkeys(EVERY, "")
    assert {lock: held(user, lock)["workspace"] for lock in READING} == dict.fromkeys(READING, "")


def test_danger_full_access_is_not_locked() -> None:
    names = ["write_outside", "tcp", "execute"]
    came = outcomes(USERS[0], {"name": "server", "mode": "danger-full-access"}, names)
    assert {came[name] for name in names} == {attempts.DONE}


def test_a_set_user_id_program_gains_nothing() -> None:
    """Where a test runner is not root, it cannot make such a program, and only the refusal shows."""
    name = "gain_by_set_user_id"
    if os.geteuid() == 0:
        assert outcomes("nobody", None, [name]) == {name: attempts.DONE}
    assert {outcomes("nobody", LOCKS[lock], [name])[name] for lock in COMMANDS} == {"EPERM"}


BEGIN = """
import os, threading
from mcp_toolserver.runtime.sandbox.layers import process_locks, landlock
def lock(abi=landlock.abi(), mode="read-only", port=None):
    landlock.abi = lambda: abi
    try:
        process_locks.lock_server(
            mode=mode, reads=["/etc", "/nowhere/at/all"], writes=["/neither"], network=False, port=port
        )
    except (process_locks.LockError, ValueError) as error:
        print(type(error).__name__, error)
        try:
            os.listdir("/")
            print("as free as before")
        except PermissionError:
            print("half held")
    else:
        print("held")
"""


LOCKED: Mapping[str, tuple[str, str]] = {
    "control": ("", "held"),
    "version-3": ("abi=3", "held"),
    "version-2": ("abi=2", "LockError"),
    "no-landlock": ("abi=0", "LockError"),
    "no-rules-for-ports": ("abi=3, port=80", "LockError"),
    "a-mode-that-is-not-enforced": ("mode='danger-full-access'", "ValueError"),
    "no-mode": ("mode=''", "ValueError"),
}


def test_a_server_is_held_or_says_why_not() -> None:
    for case, (how, said) in LOCKED.items():
        lines = python(f"{BEGIN}lock({how})").splitlines()
        assert lines[0].split()[0] == said, case
        assert lines[1:] == ([] if said == "held" else ["as free as before"]), case


def test_a_second_thread_at_lock_time_is_refused() -> None:
    code = """
stop = threading.Event()
thread = threading.Thread(target=stop.wait)
thread.start()
lock()
stop.set()
thread.join()
"""
    lines = python(BEGIN + code).splitlines()
    assert lines[0].startswith("LockError 2 threads")
    assert lines[1] == "as free as before"


def test_a_process_that_is_held_as_often_as_it_can_be_is_refused() -> None:
    code = """
for _ in range(16):
    landlock.restrict(landlock.Rules(executes=("/",)))
lock()
"""
    assert python(BEGIN + code).startswith("LockError Landlock holds")


def test_without_a_network_a_server_connects_to_the_port_of_its_model_only() -> None:
    code = """
import socket
services = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
ports = [service.getsockname()[1] for service in services]
lock(port=ports[0])
def tried(family, kind, connects):
    try:
        with socket.socket(family, kind) as made:
            connects(made)
        return "yes"
    except PermissionError:
        return "no"
for port in ports:
    print(tried(socket.AF_INET, socket.SOCK_STREAM, lambda made: made.connect(("127.0.0.1", port))))
print(tried(socket.AF_INET, socket.SOCK_DGRAM, lambda made: None))
print(tried(socket.AF_UNIX, socket.SOCK_STREAM, lambda made: None))
print(tried(socket.AF_NETLINK, socket.SOCK_RAW, lambda made: None))
fast_open = lambda made: made.sendto(b"x", 0x20000000, ("127.0.0.1", ports[1]))
print(tried(socket.AF_INET, socket.SOCK_STREAM, fast_open))
"""
    assert python(BEGIN + code).split() == ["held", "yes", "no", "no", "no", "no", "no"]


def test_the_current_folder_is_not_read_for_being_where_modules_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "modules").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    monkeypatch.setattr(
        sys, "path", ["", "relative", *(str(tmp_path / name) for name in (".", "deep", "modules")), *sys.path]
    )
    places = system_places()
    assert all(place.startswith("/") for place in places)
    assert str(tmp_path / "modules") in places
    assert not {str(tmp_path), f"{tmp_path}/.", str(tmp_path / "deep"), "/", ""} & set(places)


def test_a_root_within_something_hidden_is_shown(tmp_path: Path) -> None:
    (tmp_path / "hidden" / "root" / "inner").mkdir(parents=True)
    hidden = str(tmp_path / "hidden")
    assert f"{hidden}/root" in set(everything_but({hidden}, ("/", f"{hidden}/root")))


def test_a_folder_with_too_many_neighbours_of_the_hidden_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        (tmp_path / str(number)).touch()
    monkeypatch.setattr("mcp_toolserver.runtime.sandbox.layers.process_locks.MOST_NEIGHBOURS", 11)
    with pytest.raises(LockError, match="too many"):
        list(everything_but({str(tmp_path / "0")}, (str(tmp_path),)))


COMMAND = """
from mcp_toolserver.runtime.sandbox.layers import process_locks
top = sys.argv[1]
try:
    process_locks.lock_command(
        sys.argv[2], roots=[top], writes=[], hidden=[f"{top}/secret"], network=False
    )
except process_locks.LockError as error:
    print("LockError")
else:
    open(f"{top}/other", encoding="utf-8").close()
    try:
        open(f"{top}/secret", encoding="utf-8").close()
    except PermissionError:
        print("kept")
"""


def test_the_hidden_in_a_root_is_kept_or_no_command_runs(tmp_path: Path) -> None:
    for name in ("secret", "other"):
        (tmp_path / name).touch()
    for how, said in (("workspace-write", "LockError"), ("read-only", "kept")):
        assert python(COMMAND, str(tmp_path), how).split() == [said]


SINCE: Mapping[str, int] = {"truncate_outside": 3, "tcp": 4, "signal_outsider": 6, "abstract": 6}
"""The version that an attempt is refused since."""


def test_a_version_refuses_what_it_knows() -> None:
    free = outcomes(USERS[-1], None, list(SINCE))
    assert free == dict.fromkeys(SINCE, "done")
    for abi in (3, 4, 6):
        came = outcomes(USERS[-1], {"name": "landlock", "abi": abi}, list(SINCE))
        assert {name: came[name] != "done" for name in SINCE} == {
            name: abi >= since for name, since in SINCE.items()
        }, abi


def test_each_version_handles_the_rights_that_came_with_it() -> None:
    for abi, bit in {1: 12, 2: 13, 3: 14, 5: 15, 9: 16}.items():
        assert landlock.handled_rights(abi) >> bit & 1
        assert not landlock.handled_rights(abi - 1) >> bit & 1


def test_rights_that_a_version_lacks_are_named() -> None:
    assert landlock.missing_rights(99) == ()
    assert landlock.missing_rights(9) == ("UDP",)
    assert "truncating files" in landlock.missing_rights(2)
    assert "truncating files" not in landlock.missing_rights(3)
    assert "files" in landlock.missing_rights(0)


PLACES: Mapping[str, tuple[dict[str, list[str]], set[str]]] = {
    "descriptor": ({"reads": ["descriptor"]}, {"read_workspace"}),
    "link": ({"reads": ["link"]}, {"read_workspace"}),
    "listed": ({"listed": ["workspace"]}, {"read_workspace"}),
    "listed link": ({"listed": ["link"]}, set()),
    "paths": (
        {"reads": ["workspace", "nowhere/at/all"], "writes": ["outside/old"]},
        {"read_workspace", "write_outside"},
    ),
}
"""By case the rules, and what works of the attempts."""


def test_a_rule_for_a_folder_covers_all_below_it() -> None:
    """Where a link has come since, nothing is granted; what is not there is skipped."""
    names = ("read_workspace", "write_workspace", "write_outside", "read_hidden")
    for case, (rules, works) in PLACES.items():
        came = outcomes(USERS[-1], {"name": "places", **rules}, names)
        assert {name for name in names if came[name] == "done"} == works, case
