"""What one command may use: over it, all of the command is gone, the limit is named, and others go on."""

import asyncio
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.helper_launcher import Programs
from mcp_toolserver.runtime.sandbox.broker.limit_settings import CommandBounds
from mcp_toolserver.runtime.sandbox.broker.messages import Program, Request, Script
from mcp_toolserver.runtime.sandbox.broker.resource_limits import LATEST, SOONEST, ended_by, over, pause
from mcp_toolserver.runtime.sandbox.broker.resource_usage import Usage, measure
from mcp_toolserver.runtime.sandbox.layers.bubblewrap import candidates
from tests.shell.conftest import Brokers
from tests.support.processes import (
    Daemons,
    asked,
    call,
    outcome,
    parent,
    processes,
    python,
    served,
    until,
)

MIB = 1 << 20
ENOUGH = CommandBounds()
FEW = replace(ENOUGH, processes=40)
LITTLE = replace(ENOUGH, memory=200 * MIB)
SHORT = replace(ENOUGH, cpu_seconds=1)

TOO_MANY = (137, "over a limit", "more than 40 processes at once")
TOO_MUCH = (137, "over a limit", "more than 200.0 MiB of memory")
TOO_LONG = (137, "over a limit", "more than 1 s of processor time")
ENDED = (0, "exited", "")

Wrap = Callable[[str], str]
Pipe = tuple[int, int]
At = Callable[[CommandBounds], Broker]


@pytest.fixture
def at(layer: str, brokers: Brokers) -> At:
    """The shared broker of the layer with these bounds."""
    return lambda bounds: brokers(layer, bounds)


@contextmanager
def piped() -> Generator[Pipe]:
    """What a command reads, and where to write for it to go on."""
    ends = os.pipe()
    yield ends
    for one in ends:
        os.close(one)


@pytest.fixture
def pipe() -> Generator[Pipe]:
    with piped() as ends:
        yield ends


def sandboxed(script: str) -> str:
    """A script that runs another one in user and process namespaces of its own."""
    sandbox = "--unshare-user --unshare-pid --die-with-parent --ro-bind / / --dev /dev --proc /proc"
    return f"exec {candidates(os.environ['PATH'], ())[0]} {sandbox} bash -c {shlex.quote(script)}"


def program(source: str, *arguments: str) -> str:
    """A script that runs a Python program, for what a shell cannot do."""
    return shlex.join([sys.executable, "-c", source, *arguments])


def waiting(source: str, *arguments: str) -> str:
    """A Python program that then says that it is ready, and reads exactly one byte: several share one input,
    and a buffer would take what the others wait for."""
    return program(f"{source}print('ready', flush=True)\nos.read(0, 1)", *arguments)


def patient(script: str) -> Request:
    """A command that must end for another reason than its time."""
    return Script(script=script, timeout=60.0)


def end(last: dict[str, object]) -> tuple[object, object, object]:
    """Status, reason and detail of a supervisor's last word."""
    return last.get("status"), last.get("reason"), last.get("detail", "")


BOTH = pytest.mark.parametrize("layer", ["linux", "posix"], indirect=True)
"""For limits that the broker of other POSIX systems has as well."""

PLACES = pytest.mark.parametrize(
    ("layer", "wrap"),
    [("linux", sandboxed), ("posix", str)],
    ids=["sandbox", "posix"],
    indirect=["layer"],
)
"""How processes are found and counted differs between the layers, and in a sandbox; helper programs are
bounded without one."""


def assert_ended_unless_over(few: Broker, pipe: Pipe, script: str, expected: tuple[object, ...]) -> None:
    """Run what says that it is ready, and then waits to go on: it must end like this."""
    waits, goes_on = pipe
    with asked(few, patient(script), stdin=waits) as command:
        if expected == ENDED:
            for _ in range(2 if "seq 2" in script else 1):
                assert command.line() == "ready"
            os.write(goes_on, b"\n" * 3)
        assert end(command.end()[0]) == expected


def many(count: int, start: str, end: str = "wait") -> str:
    """A script that starts something so many times."""
    return f"for i in $(seq {count}); do {start}; done; {end}"


@PLACES
async def test_a_command_with_too_many_processes_is_killed_whole_and_others_go_on(
    at: At, wrap: Wrap, pipe: Pipe
) -> None:
    waits, goes_on = pipe
    few = at(FEW)
    # Each with a session of its own, and each forked twice so that its parent is gone.
    for form in ("setsid sleep {} & :", "(setsid sleep {} & )"):
        daemons = Daemons()
        start = form.format(daemons.mark)
        with asked(few, patient("echo on; read; echo end"), stdin=waits) as other:
            assert await asyncio.to_thread(other.line) == "on"
            with asked(few, patient(wrap(many(400, start, "read"))), stdin=waits) as command:
                last, _ = await asyncio.to_thread(command.end)
            assert end(last) == TOO_MANY
            assert daemons.alive() == []
            os.write(goes_on, b"\n")
            last, output = await asyncio.to_thread(other.end)
            assert (end(last), output) == (ENDED, "end\n")
        with asked(few, patient(wrap(many(25, start, "read"))), stdin=waits) as command:
            await until(lambda daemons=daemons: len(daemons.alive()) == 25)
            os.write(goes_on, b"\n")
            last, _ = await asyncio.to_thread(command.end)
        assert end(last) == ENDED
        assert daemons.alive() == []


DEAD = """
import os, sys
for _ in range(int(sys.argv[1])):
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
"""


@BOTH
def test_the_dead_that_nobody_waits_for_count(at: At, pipe: Pipe) -> None:
    assert_ended_unless_over(at(FEW), pipe, waiting(DEAD, "100"), TOO_MANY)
    assert_ended_unless_over(at(FEW), pipe, waiting(DEAD, "20"), ENDED)


THREADS = """
import os, sys, threading
for _ in range(int(sys.argv[1])):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


def test_threads_have_a_limit_of_their_own(at: At, pipe: Pipe) -> None:
    few = at(replace(ENOUGH, threads=60))
    assert_ended_unless_over(
        few, pipe, waiting(THREADS, "200"), (137, "over a limit", "more than 60 threads at once")
    )
    assert_ended_unless_over(few, pipe, waiting(THREADS, "30"), ENDED)


GROWING = """
import os, sys
held = bytearray()
for _ in range(int(sys.argv[1])):
    held += bytes(20 << 20)
"""
FORKED = """
import os, signal, sys
pieces = [b"x" * (20 << 20) for _ in range(int(sys.argv[1]))]
for _ in range(3):
    if os.fork() == 0:
        signal.pause()
"""
"""The same pages in four processes."""

SHARED = """
import mmap, os, signal, sys
shared = mmap.mmap(-1, int(sys.argv[1]) * (20 << 20))
for at in range(0, len(shared), 4096):
    shared[at] = 1
for _ in range(3):
    if os.fork() == 0:
        sum(shared[at] for at in range(0, len(shared), 4096))
        signal.pause()
"""


def apart(script: str, count: int) -> str:
    """A script that runs another one so many times at once, each in a session of its own."""
    return many(count, f"(setsid {script} <&0 &)", "read")


HOGS = (
    waiting(GROWING, "30"),
    apart(waiting(GROWING, "6"), 2),
    waiting(SHARED, "15"),
)

MODEST = (
    waiting(GROWING, "5"),
    apart(waiting(GROWING, "2"), 2),
    waiting(SHARED, "5"),
    waiting(FORKED, "5"),
)


@PLACES
def test_a_command_with_too_much_memory_is_killed_whole(at: At, wrap: Wrap, pipe: Pipe) -> None:
    for script in HOGS[:1] if wrap is str else HOGS:
        assert_ended_unless_over(at(LITTLE), pipe, wrap(script), TOO_MUCH)
    assert outcome(at(LITTLE), "echo on")[1] == "on\n"


def test_a_command_with_less_memory_runs_to_its_end(at: At) -> None:
    for script in MODEST:
        # What one leaves unread must not wake the next.
        with piped() as pipe:
            assert_ended_unless_over(at(LITTLE), pipe, sandboxed(script), ENDED)


HOPPING = """
import os, sys, time
for _ in range(int(sys.argv[1])):
    if os.fork():
        os._exit(0)
    while time.process_time() < 0.02:
        pass
print("ready", flush=True)
"""
"""A chain of processes that each compute for a moment; nobody but its supervisor sees all of it."""

SPIN = "(while :; do :; done) & (while :; do :; done) & (while :; do :; done) & wait"
COUNT = "(for i in {1..2000}; do :; done) & (for i in {1..2000}; do :; done) & wait"


def test_processor_time_is_counted_over_all_processes(at: At) -> None:
    chain = apart(program(HOPPING, "300"), 1), apart(program(HOPPING, "10"), 1)
    for script, modest in ((SPIN, COUNT), chain):
        with piped() as (waits, goes_on):
            with asked(at(SHORT), patient(sandboxed(script)), stdin=waits) as command:
                assert end(command.end()[0]) == TOO_LONG
            os.write(goes_on, b"\n")
            with asked(at(SHORT), patient(sandboxed(modest)), stdin=waits) as command:
                assert end(command.end()[0]) == ENDED


ONE_MIB = replace(ENOUGH, file_size=MIB)
FULL_FILE = (153, "exited", "more than 1.0 MiB in one file")


def fill(file: str, pieces: int) -> str:
    """A script that writes so many pieces of 64 KiB."""
    return f"dd if=/dev/zero of={file} bs=64K count={pieces} status=none"


@BOTH
def test_a_file_does_not_grow_beyond_its_limit(at: At, tmp_path: Path) -> None:
    file, bounded = tmp_path / "file", at(ONE_MIB)
    assert end(outcome(bounded, fill(str(file), 16))[0]) == ENDED
    assert file.stat().st_size == MIB
    assert end(outcome(bounded, fill(str(file), 50))[0]) == FULL_FILE
    assert file.stat().st_size == MIB
    last, output = outcome(bounded, f"{fill(str(file), 50)} 2>/dev/null; echo on")
    assert (end(last), output.splitlines()[-1]) == (ENDED, "on")
    # A program that ignores the signal gets an error.
    write = "import sys; open(sys.argv[1], 'ab', 0).write(b'x')"
    last, output = outcome(bounded, program(write, str(file)))
    assert end(last) == (1, "exited", "")
    assert "File too large" in output


def test_a_file_in_a_sandbox_does_not_grow_beyond_its_limit(at: At) -> None:
    assert end(outcome(at(ONE_MIB), sandboxed(fill("/dev/shm/file", 16)))[0]) == ENDED
    assert end(outcome(at(ONE_MIB), sandboxed(fill("/dev/shm/file", 50)))[0]) == FULL_FILE


@BOTH
def test_a_process_starts_with_few_open_files_and_ends_soon_after_its_time(at: At) -> None:
    few, more = at(replace(ENOUGH, open_files=500)), at(replace(ENOUGH, open_files=2000, cpu_seconds=100))
    files = "echo $(ulimit -Sn) $(ulimit -Hn)"
    assert [outcome(one, files)[1] for one in (few, more)] == ["500 500\n", "1024 2000\n"]
    assert outcome(more, "echo $(ulimit -St) $(ulimit -Ht)")[1] == "110 120\n"


INHERITED = """
import resource
from mcp_toolserver.runtime.sandbox.broker.limit_settings import CommandBounds
from mcp_toolserver.runtime.sandbox.broker.resource_limits import apply
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 2000))
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 3000))
apply(CommandBounds(file_size=1 << 20, open_files=2000))
print(resource.getrlimit(resource.RLIMIT_FSIZE), resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_a_limit_that_was_lower_stays() -> None:
    done = subprocess.run(python(INHERITED), capture_output=True, check=True, encoding="utf-8")
    assert done.stdout == "(1000, 2000) (100, 2000)\n"


@BOTH
async def test_a_helper_program_is_bounded_as_well_and_who_runs_it_learns_the_limit(
    at: At, tmp_path: Path
) -> None:
    daemons, start = Daemons(), ("/bin/bash", "-c")
    folder = os.open(tmp_path, os.O_RDONLY)
    argv = (*start, many(400, f"sleep {daemons.mark} & :"))
    async with Programs(at(FEW)).open(argv, cwd=folder, timeout=60.0) as running:
        ended = await running.wait()
        assert (ended.reason, ended.detail) == ("over a limit", "more than 40 processes at once")
        assert daemons.alive() == []
    os.close(folder)
    assert end(outcome(at(FEW), Program(argv=(*start, many(20, "sleep 0 & :")), timeout=60.0))[0]) == ENDED


async def test_the_result_names_the_limit_and_what_to_do(tmp_path: Path) -> None:
    daemons = Daemons()
    async with served(tmp_path, bounds=replace(FEW, file_size=MIB)) as server:
        command = f"echo begun; {many(400, f'sleep {daemons.mark} & :')}"
        result = await call(server, "bash", command=command)
        assert "begun" in result.text
        assert "more than 40 processes at once" in result.text
        assert "operator" in result.text
        assert daemons.alive() == []
        started = await call(server, "bash", command=command, run_in_background=True)
        task = re.findall(r"bg_[0-9a-f]{6}", started.text)[0]
        result = await call(server, "TaskOutput", task_id=task, until="end", wait_ms=20_000)
        assert "more than 40 processes at once" in result.text
        assert daemons.alive() == []
        result = await call(server, "bash", command=fill(str(tmp_path / "file"), 50))
        assert "exit status 153" in result.text
        assert "more than 1.0 MiB in one file" in result.text


@contextmanager
def ready(script: str) -> Generator[int]:
    """A shell whose script, or what it started, has said that it is ready."""
    command, pipe = ["/bin/bash", "-c", script], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) as shell:
        assert shell.stdout is not None
        try:
            assert shell.stdout.readline() == b"ready\n"
            yield shell.pid
        finally:
            os.killpg(shell.pid, signal.SIGKILL)


def measured(script: str, *, exact_above: int = 0) -> Usage:
    with ready(script) as shell:
        return measure(shell, exact_above=exact_above)


def under(script: str) -> str:
    """A script that has a child run another one."""
    return f"{script} <&0 & wait"


def test_a_name_with_brackets_hides_nothing() -> None:
    script = """(echo ") Z 1 (" > /proc/$BASHPID/comm; echo ready; read) <&0 & wait"""
    assert measured(script).processes == 1


MAPPED = """
import mmap, os, sys
with open(sys.argv[1], "r+b") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
sum(mapped[at] for at in range(0, len(mapped), 4096))
"""


def test_pages_of_a_mapped_file_are_not_counted(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(100 * MIB))
    script = under(waiting(MAPPED, str(file)))
    assert measured(script, exact_above=1 << 60).memory > 100 * MIB
    assert measured(script).memory < 50 * MIB


def test_the_time_of_children_that_are_gone_is_counted() -> None:
    # The kernel counts in hundredths.
    burn = program("import time\nwhile time.process_time() < 0.25:\n    pass")
    assert measured(under(f"bash -c {shlex.quote(f'{burn}; echo ready; read')}")).cpu_seconds >= 0.2
    assert measured("echo ready; read").cpu_seconds < 0.2


def test_both_ways_of_looking_see_the_same(tmp_path: Path) -> None:
    with ready('bash -c "(read) <&0 & echo ready; wait" <&0 & wait') as shell:
        child = next(pid for pid in processes() if parent(pid) == shell)
        grandchild = next(pid for pid in processes() if parent(pid) == child)
        # Where the kernel was not built to list children, /proc holds the processes alone.
        for pid in (shell, child, grandchild):
            (tmp_path / str(pid)).symlink_to(f"/proc/{pid}")
        seen = measure(shell, exact_above=0, proc=str(tmp_path))
        assert seen == measure(shell, exact_above=0)
        # A thread may end after it was listed.
        (tmp_path / "ended" / str(shell) / "task" / "1").mkdir(parents=True)
        (tmp_path / "ended/thread-self/children").mkdir(parents=True)
        assert measure(shell, exact_above=0, proc=str(tmp_path / "ended")).processes == 0
        assert seen.processes == 2


USED = Usage(processes=512, threads=4096, memory=4 << 30, cpu_seconds=60.0)
BOUNDS = CommandBounds(processes=512, threads=4096, memory=4 << 30, cpu_seconds=60)


def test_only_what_is_over_a_bound_is_named() -> None:
    assert over(BOUNDS, USED) is None
    assert over(BOUNDS, replace(USED, processes=513)) == "more than 512 processes at once"
    assert over(BOUNDS, replace(USED, threads=4097)) == "more than 4,096 threads at once"
    assert over(BOUNDS, replace(USED, memory=(4 << 30) + 1)) == "more than 4.0 GiB of memory"
    assert over(BOUNDS, replace(USED, cpu_seconds=60.1)) == "more than 60 s of processor time"


def test_a_status_that_tells_of_a_limit_is_understood() -> None:
    assert [ended_by(status, BOUNDS) for status in (0, None, 128 + signal.SIGKILL)] == ["", "", ""]
    assert ended_by(128 + signal.SIGXFSZ, BOUNDS) == "more than 8.0 GiB in one file"
    assert ended_by(128 + signal.SIGXCPU, BOUNDS) == "more than 60 s of processor time"


def test_a_command_that_grows_is_looked_at_more_often() -> None:
    looks = {
        "quiet: twice as long": (pause(0.02, 0.1, 0.0), 0.04),
        "quiet for long: no longer than that": (pause(0.2, 0.1, 0.0), LATEST),
        "shrinking": (pause(0.2, 0.1, -5.0), LATEST),
        "growing: half the time that is left": (pause(0.2, 0.5, 2.0), 0.125),
        "nearly full: no shorter than that": (pause(0.2, 0.99, 10.0), SOONEST),
        "over": (pause(0.2, 1.2, 10.0), SOONEST),
    }
    for name, (found, expected) in looks.items():
        assert found == pytest.approx(expected), name
