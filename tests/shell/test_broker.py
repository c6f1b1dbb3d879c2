"""The broker: what it starts, what it refuses, and that nothing it started is left."""

import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from mcp_toolserver.errors import Unavailable
from mcp_toolserver.runtime.processes import broker_client
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.sandbox.broker.fd_passing import MOST_AT_ONCE, receive, send
from mcp_toolserver.runtime.sandbox.broker.messages import (
    REQUEST,
    RESUME,
    SUSPEND,
    Program,
    Script,
)
from mcp_toolserver.runtime.sandbox.layers.environment import DEFAULT_PATH, command_environment
from tests.support.processes import (
    Asked,
    Daemons,
    asked,
    broker,
    outcome,
    parent,
    processes,
    sandbox_in,
    state,
    until,
)


@pytest.fixture(autouse=True, params=["linux", "posix"])
def layer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The broker of Linux, and that of other POSIX systems: two programs, which keep the same promises."""
    monkeypatch.setattr(broker_client, "process_layer", lambda: request.param)
    return request.param


ENDED = {"status": 0, "reason": "exited"}

LINUX = pytest.mark.parametrize("layer", ["linux"], indirect=True)
"""For what only the broker of Linux does; the package `posix` lists it, with the reasons."""


def test_the_end_of_a_command_is_reported(at: Broker) -> None:
    statuses = {"true": 0, "exit 3": 3, "kill -TERM $$": 143, "no-such-command": 127}
    found = {script: outcome(at, script)[0] for script in statuses}
    assert found == {script: {"status": status, "reason": "exited"} for script, status in statuses.items()}


def test_a_shell_that_cannot_be_started_is_no_exit_status() -> None:
    with broker(shell=("/nonexistent/bash", "-c")) as at:
        last, output = outcome(at, "true")
    assert last.keys() == {"failed"}
    assert output == ""


def test_a_command_runs_in_its_folder_and_its_input_is_at_its_end(at: Broker, tmp_path: Path) -> None:
    assert outcome(at, "pwd -P", cwd=str(tmp_path))[1] == f"{tmp_path.resolve()}\n"
    with asked(at, "cat; echo done") as command:
        assert command.next() == {"started": True}
        assert command.end() == (ENDED, "done\n")
    # There is no temporary folder where commands share none.
    assert (at.temporary_folder("one"), at.proof.shares_session) == (None, False)


def test_only_the_standard_descriptors_reach_a_command() -> None:
    listing = "for d in /proc/$BASHPID/fd/*; do [ -e $d ] && echo ${d##*/}; done; true"
    leak, other = os.pipe()
    os.set_inheritable(leak, True)
    try:
        plain = subprocess.run(
            ["bash", "-c", listing], close_fds=False, capture_output=True, check=True, encoding="utf-8"
        )
        with broker() as at:
            short, long = outcome(at, listing)[1], outcome(at, f"{listing}\n{'#' * 200_000}")[1]
    finally:
        os.close(leak)
        os.close(other)
    assert str(leak) in plain.stdout.split()
    assert set(short.split()) <= {"0", "1", "2", "255"}
    assert set(long.split()) <= {"0", "1", "2", "255"}


def test_a_script_longer_than_any_argument_runs_whole_in_any_shell(at: Broker) -> None:
    script = "a=$((1 + 1))\n" + f"b='{'x' * 200_000}'\n" + "echo $a ${#b}; exit 7\n"
    assert outcome(at, script) == ({"status": 7, "reason": "exited"}, "2 200000\n")
    with broker(shell=("/bin/sh", "-c")) as plain:
        assert outcome(plain, f'# {"x" * 200_000}\necho "it\'s" $((1 + 1))') == (ENDED, "it's 2\n")


def test_signals_act_as_in_any_shell(at: Broker) -> None:
    _, output = outcome(at, "yes | head -1; echo ${PIPESTATUS[0]}; cat /proc/self/status")
    assert output.startswith("y\n141\n")
    said = dict(line.split(":\t", 1) for line in output.splitlines()[2:])
    assert int(said["SigBlk"], 16) == 0
    # The C library keeps 32 and 33 for itself, and posix_spawn ignores them for whom it starts.
    assert int(said["SigIgn"], 16) & ~(3 << 31) == 0


@LINUX
def test_sudo_gains_nothing_and_memory_shortage_hits_commands_first(at: Broker) -> None:
    script = "grep NoNewPrivs /proc/self/status; cat /proc/self/oom_score_adj"
    assert outcome(at, script)[1] == "NoNewPrivs:\t1\n1000\n"


def test_nothing_dumps_its_memory(at: Broker) -> None:
    limit = resource.getrlimit(resource.RLIMIT_CORE)[1]
    expected = "unlimited" if limit == resource.RLIM_INFINITY else str(limit // 1024)
    plain = subprocess.run(["bash", "-c", "ulimit -Hc"], capture_output=True, check=True, encoding="utf-8")
    assert plain.stdout.strip() == expected
    assert outcome(at, "ulimit -Sc; ulimit -Hc")[1] == "0\n0\n"


@LINUX
def test_what_people_need_and_what_an_operator_names_or_describes_by_a_pattern_is_passed_on() -> None:
    given = {"HOME": "/h", "USER": "u", "LOGNAME": "u", "LC_TIME": "C", "TZ": "UTC", "TMPDIR": "/t"}
    named = {"TERM": "xterm", "DISPLAY": ":0", "CARGO_HOME": "/c", "CARGO_TARGET_DIR": "/t"}
    around = {**given, **named, "SHELL": "relative", "OTHER": "x"}
    found = command_environment(around, ["DISPLAY", "MISSING", "CARGO_*"])
    unattended = {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
    assert found == {**given, **unattended, **named, "PATH": DEFAULT_PATH}
    assert command_environment({})["TERM"] == "dumb"
    # Commands find programs where the path holds only the server's own Python.
    own = f"{sys.prefix}/bin"
    assert command_environment({"PATH": own})["PATH"] == f"{own}:{DEFAULT_PATH}"
    assert command_environment({"PATH": f"{own}:/elsewhere"})["PATH"] == f"{own}:/elsewhere"


@pytest.mark.parametrize("mode", ["workspace-write", "anything"])
def test_a_command_is_refused_where_nothing_holds_it_whoever_asks(
    mode: str, tmp_path: Path, layer: str, at: Broker
) -> None:
    script = f"touch {tmp_path}/mark"
    with broker(mode, ("/bin/echo",)) as confined:
        last, output = outcome(confined, script)
        # The broker works: it is the mode that it refuses. Landlock holds helpers on Linux.
        if layer == "linux":
            assert outcome(confined, Program(argv=("/bin/echo", "hi"), timeout=5)) == (ENDED, "hi\n")
        confined.check()
    assert (last.keys(), output) == ({"refused"}, "")
    assert not (tmp_path / "mark").exists()
    assert outcome(at, script)[0] == ENDED
    assert (tmp_path / "mark").exists()


def test_only_the_helpers_of_the_charter_run(at: Broker) -> None:
    allowed = {
        ("/bin/echo", "--fixed", "x"): True,
        ("/bin/echo", "x"): False,
        ("/bin/echo",): False,
        ("/bin/sh", "-c", "echo x"): False,
        ("echo", "--fixed"): False,
        ("/bin/../bin/echo", "--fixed"): False,
    }
    for argv, is_allowed in allowed.items():
        last, output = outcome(at, Program(argv=argv, timeout=5))
        assert ((last == ENDED), ("x" in output)) == (is_allowed, is_allowed), argv


NO_REQUESTS = (
    b"",
    b"{",
    b"[]",
    b"null",
    b'{"kind": "command"}',
    b'{"kind": "command", "script": 1, "timeout": 1}',
    b'{"kind": "command", "script": "touch MARK", "timeout": NaN}',
    b'{"kind": "command", "script": "touch MARK", "timeout": -1}',
    b'{"kind": "command", "script": "touch MARK", "timeout": "1"}',
    b'{"kind": "command", "script": "touch MARK\\u0000", "timeout": 1}',
    b'{"kind": "other", "script": "touch MARK", "timeout": 1}',
    b'{"kind": "helper", "argv": [], "timeout": 1}',
    b'{"kind": "helper", "argv": ["/bin/echo", "--fixed", 1], "timeout": 1}',
    b'{"kind": "helper", "argv": "/bin/echo", "timeout": 1}',
    b'{"kind": "command", "script": "touch MARK", "argv": ["/bin/echo"], "timeout": 1}',
)


def test_what_is_no_request_is_refused_and_the_next_one_served(at: Broker, tmp_path: Path) -> None:
    for body in NO_REQUESTS:
        ours, theirs = socket.socketpair()
        file = os.memfd_create("request")
        os.write(file, body.replace(b"MARK", str(tmp_path / "mark").encode()))
        nothing, folder = os.open(os.devnull, os.O_RDWR), os.open("/", os.O_RDONLY)
        raw(at, theirs.fileno(), file, folder, nothing, nothing, nothing)
        theirs.close()
        ours.settimeout(10)
        assert json.loads(ours.recv(4096)).keys() == {"refused"}, body
        assert outcome(at, "echo on")[1] == "on\n"
        ours.close()
        for descriptor in (file, nothing, folder):
            os.close(descriptor)
    assert not (tmp_path / "mark").exists()


def raw(at: Broker, *descriptors: int) -> None:
    """Send descriptors past all that the server's side does."""
    at._send(REQUEST, "", descriptors)


def test_a_packet_with_too_few_descriptors_does_no_harm(at: Broker) -> None:
    ours, theirs = socket.socketpair()
    raw(at, theirs.fileno())
    theirs.close()
    ours.settimeout(10)
    assert ours.recv(1) == b""
    ours.close()
    assert outcome(at, "echo on")[1] == "on\n"


def test_a_broker_that_is_gone_is_said_to_be_gone() -> None:
    with broker() as at:
        os.kill(at.pid, signal.SIGKILL)
        os.waitpid(at.pid, 0)
        for ask in (
            *(lambda: outcome(at, "true"), at.check, lambda: at.hide(["*.key"])),
            *(lambda: at.temporary_folder("a"), lambda: at.proof),
        ):
            with pytest.raises(Unavailable):
                ask()
        at.end_session("a")


async def running(daemons: Daemons, command: Asked) -> None:
    """The daemons of a command run."""
    assert await asyncio.to_thread(command.line) == "ready"
    await until(lambda: len(daemons.alive()) == 4)


async def test_daemons_are_gone_when_the_end_of_their_command_is_reported(at: Broker) -> None:
    ends: list[tuple[float, str, int, str]] = [
        (1.0, "sleep 100", 137, "timed out"),
        (100.0, "read; exit 4", 4, "exited"),
        (100.0, "sleep 100", 137, "stopped"),
    ]
    for timeout, then, status_then, reason in ends:
        daemons, (stdin, end) = Daemons(), os.pipe()
        script = Script(script=f"{daemons.script}{then}", timeout=timeout)
        with asked(at, script, stdin=stdin) as command:
            os.close(stdin)
            await running(daemons, command)
            os.close(end)
            if reason == "stopped":
                command.control.shutdown(socket.SHUT_WR)
            last, _ = await asyncio.to_thread(command.end)
            assert last == {"status": status_then, "reason": reason}
            assert daemons.alive() == [], reason


async def test_daemons_die_when_nobody_listens_any_more(at: Broker) -> None:
    daemons = Daemons()
    with asked(at, f"{daemons.script}sleep 100") as command:
        await running(daemons, command)
        command.control.close()
        await until(lambda: not daemons.alive())


async def test_daemons_are_gone_when_the_broker_is_closed() -> None:
    daemons = Daemons()
    with broker() as at, asked(at, f"{daemons.script}sleep 100") as command:
        await running(daemons, command)
        await asyncio.to_thread(at.close)
        assert daemons.alive() == []


async def test_daemons_die_with_a_broker_that_is_killed() -> None:
    daemons = Daemons()
    with broker() as at, asked(at, f"{daemons.script}sleep 100") as command:
        await running(daemons, command)
        os.kill(at.pid, signal.SIGKILL)
        last, _ = await asyncio.to_thread(command.end)
        assert last == {"status": 137, "reason": "lost"}
        assert daemons.alive() == []


async def test_daemons_die_with_a_supervisor_that_is_killed(at: Broker) -> None:
    daemons = Daemons()
    with asked(at, f"{daemons.script}echo $PPID; sleep 100") as command:
        await running(daemons, command)
        os.kill(int(command.line()), signal.SIGKILL)
        await until(lambda: not daemons.alive())
        assert outcome(at, "echo on")[1] == "on\n"


def _waiting(at: Broker) -> list[int]:
    """The supervisor that waits for a request and the fork that waits for the supervisor."""
    # What the self-test left may be a zombie until the next child of the broker ends.
    supervisors = [pid for pid in processes() if parent(pid) == at.pid and state(pid) not in "XZ"]
    return supervisors + [pid for pid in processes() if parent(pid) in supervisors]


@LINUX
async def test_a_broker_gets_over_the_loss_of_what_waits_and_takes_it_along_at_its_end() -> None:
    with broker() as at:
        for place in (0, 1):
            await until(lambda: len(_waiting(at)) == 2)
            lost = _waiting(at)
            os.kill(lost[place], signal.SIGKILL)
            await until(lambda lost=lost: state(lost[1]) in "XZ")
            # A supervisor without its fork can only say so; the next one has its own.
            if place == 1:
                assert "killed" in str(outcome(at, "true")[0]["failed"])
            assert outcome(at, "echo on")[1] == "on\n"
        await until(lambda: len(_waiting(at)) == 2)
        waiting = _waiting(at)
    await until(lambda: all(state(pid) in "XZ" for pid in waiting))


@LINUX
async def test_the_supervisor_that_waits_learns_what_rules_hide(tmp_path: Path) -> None:
    sandbox = sandbox_in(tmp_path)
    key = tmp_path / "root/a.key"
    key.write_text("word", encoding="ascii")
    with broker(sandbox=sandbox) as at:
        await until(lambda: len(_waiting(at)) >= 2)
        at.hide(["*.key"])
        _, output = outcome(at, f"cat {key}; echo on", cwd=str(key.parent))
        assert output.endswith("on\n")
        assert "word" not in output


@LINUX
def test_more_descriptors_than_one_packet_holds_arrive_in_order() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    count = 2 * MOST_AT_ONCE + 7
    files = [os.memfd_create("one") for _ in range(count)]
    try:
        for number, file in enumerate(files):
            os.write(file, str(number).encode())
        send(ours, files)
        received = receive(theirs)
        assert [int(os.pread(file, 10, 0)) for file in received] == list(range(count))
        assert not any(map(os.get_inheritable, received))
        files += received
    finally:
        for file in files:
            os.close(file)
        ours.close()
        theirs.close()


@LINUX
async def test_a_command_can_signal_only_its_own_processes(at: Broker) -> None:
    outsider = subprocess.Popen(["sleep", "100"])
    attempt = f"kill -0 {outsider.pid}"
    script = f"{attempt}; echo $?; kill -9 $PPID; echo $?; kill -9 {os.getpid()}; echo $?; sleep 9 & kill $!"
    try:
        subprocess.run(["bash", "-c", attempt], check=True)
        last, output = outcome(at, f"({script}; echo $?) 2>/dev/null")
        assert last == ENDED
        assert output == "1\n1\n1\n0\n"
        assert outsider.poll() is None
    finally:
        outsider.kill()
        outsider.wait()


async def test_the_dead_are_buried_while_a_command_runs(at: Broker) -> None:
    script = "for i in {1..200}; do (true & true); done; echo $PPID; sleep 100"
    with asked(at, script) as command:
        supervisor = int(await asyncio.to_thread(command.line))
        await until(lambda: [state(pid) for pid in processes() if parent(pid) == supervisor] == ["S"])


@LINUX
async def test_a_chain_that_forks_and_exits_at_once_is_caught(tmp_path: Path) -> None:
    on, hops = tmp_path / "on", tmp_path / "hops"
    on.touch()
    hops.touch()
    hop = f"""export HOP='[ -e {on} ] && echo >> {hops} && (bash -c "$HOP" &)'"""
    try:
        with (
            broker() as at,
            asked(at, Script(script=f'{hop}; eval "$HOP"; sleep 100', timeout=1.0)) as command,
        ):
            last, _ = await asyncio.to_thread(command.end)
            assert last == {"status": 137, "reason": "timed out"}
            reached = hops.stat().st_size
            await asyncio.sleep(0.3)
            assert hops.stat().st_size == reached
            assert reached > 10
    finally:
        on.unlink()


TICKS = "while :; do echo x; sleep 0.02; done"


async def test_a_suspended_command_stands_still_and_its_timeout_too(at: Broker, layer: str) -> None:
    script = f"setsid sh -c '{TICKS}' & {TICKS}"
    with asked(at, Script(script=script, timeout=0.8)) as command:
        await asyncio.to_thread(command.next)
        command.control.send(SUSPEND)
        word = await asyncio.to_thread(command.next)
        if layer == "posix":
            # Its supervisor cannot suspend, and ends the command.
            assert word["reason"] == "stopped"
            return
        assert word == {"suspended": True}
        os.set_blocking(command.output, False)
        with suppress(BlockingIOError):
            while os.read(command.output, 1 << 20):
                pass
        await asyncio.sleep(1.0)
        with pytest.raises(BlockingIOError):
            os.read(command.output, 1)
        command.control.send(RESUME)
        os.set_blocking(command.output, True)
        assert await asyncio.to_thread(command.line) == "x"
        assert (await asyncio.to_thread(command.end))[0] == {"status": 137, "reason": "timed out"}
