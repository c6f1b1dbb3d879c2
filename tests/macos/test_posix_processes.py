"""The process broker for POSIX systems, run on Linux: what `test_broker.py` does not ask of both brokers."""

import asyncio
import errno
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from mcp_toolserver.errors import SandboxUnavailable, Unavailable
from mcp_toolserver.runtime.processes import broker_client
from mcp_toolserver.runtime.processes.broker_client import Broker, process_layer
from mcp_toolserver.runtime.processes.commands import Commands
from mcp_toolserver.runtime.processes.posix_broker import PosixBroker
from mcp_toolserver.runtime.sandbox.broker import temp_folder
from mcp_toolserver.runtime.sandbox.broker.limit_settings import CommandBounds
from mcp_toolserver.runtime.sandbox.broker.messages import CHECK, HIDE, REQUEST, Script
from mcp_toolserver.runtime.sandbox.mounts.hidden_paths import MOST_HIDDEN
from mcp_toolserver.runtime.sandbox.posix import family as family_module
from mcp_toolserver.runtime.sandbox.posix import frames, killing, process_list
from mcp_toolserver.runtime.sandbox.posix.family import MARKER, Family, used_by
from mcp_toolserver.runtime.sandbox.posix.frames import Frame, receive_frame, send_frame
from mcp_toolserver.runtime.sandbox.posix.killing import end_family
from mcp_toolserver.runtime.sandbox.posix.process_list import Process, Unlisted, list_processes
from mcp_toolserver.runtime.sandbox.posix.program import NOT_SET_UP
from mcp_toolserver.runtime.sandbox.posix.watch import Watch
from mcp_toolserver.stores.saved_outputs import OutputStore
from tests.macos.assumed_sandbox import confined_broker, wanted
from tests.shell.test_killing import lines
from tests.support import families
from tests.support.live import Setup
from tests.support.open_files import descriptors
from tests.support.processes import (
    FULL,
    PATIENCE,
    Anywhere,
    Bench,
    asked,
    broker,
    few_files,
    outcome,
    python,
    until,
)

ENDED = {"status": 0, "reason": "exited"}


@pytest.fixture(autouse=True)
def layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_client, "process_layer", lambda: "posix")


def test_each_system_has_its_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []
    for platform in ("linux", "darwin", "freebsd14"):
        monkeypatch.setattr("sys.platform", platform)
        found.append(process_layer())
    assert found == ["linux", "posix", "posix"]


TOO_MANY = "too many files are open"


def test_a_broker_without_descriptors_says_so_or_closes_the_socket_and_goes_on_later() -> None:
    said: set[str] = set()
    with broker() as at:
        assert outcome(at, "echo on") == (ENDED, "on\n")
        for free in range(14):
            with few_files(at.pid, free):
                last, output = outcome(at, "echo on")
                assert output == "on\n" or not last or TOO_MANY in str(last.get("failed")), (free, last)
                said.add(output)
            assert outcome(at, "echo on") == (ENDED, "on\n"), free
    assert said == {"", "on\n"}


# --- the server and the broker are killed -----------------------------------------------------------------

SERVER = """
from mcp_toolserver.runtime.processes import broker_client
broker_client.process_layer = lambda: "posix"
from mcp_toolserver.main import main
main()
"""


async def test_a_server_that_is_killed_takes_every_process_along(tmp_path: Path) -> None:
    family, setup = families.Family(), Setup.below(tmp_path, FULL)
    arguments = setup.command[setup.command.index("mcp_toolserver") + 1 :]
    server = subprocess.Popen(
        [*python(SERVER), *arguments],
        env=setup.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert server.stdin is not None
        server.stdin.write(lines(family.command))
        server.stdin.flush()
        await until(lambda: family.runs)
        server.send_signal(signal.SIGKILL)
        await until(lambda: family.is_gone)
    finally:
        server.kill()
        server.communicate(timeout=PATIENCE)


def test_a_broker_that_was_killed_answers_nothing(tmp_path: Path) -> None:
    with broker() as at:
        os.kill(at.pid, signal.SIGKILL)
        os.waitpid(at.pid, 0)
        for ask in (at.check, lambda: at.hide(["*.key"]), lambda: at.temporary_folder("a")):
            with pytest.raises(Unavailable):
                ask()
        at.end_session("a")
        with pytest.raises(Unavailable):
            _ = at.proof


def test_a_broker_with_unreadable_patterns_ends() -> None:
    with broker() as at, open(os.devnull, "rb") as nothing:
        assert isinstance(at, PosixBroker)
        with pytest.raises(OSError, match="Broken pipe"):
            at._send(Frame(kind=HIDE), (nothing.fileno(),))
        with pytest.raises(Unavailable):
            at.check()


# --- checks -----------------------------------------------------------------------------------------------


def test_a_check_is_answered_at_once_also_in_pieces_and_in_a_row() -> None:
    with broker() as at, asked(at, "sleep 100") as command:
        assert command.next() == {"started": True}
        command.control.send(CHECK)
        assert command.next() == {"checked": True}
        command.control.send(CHECK + CHECK[:2])
        assert command.next() == {"checked": True}
        command.control.send(CHECK[2:])
        assert command.next() == {"checked": True}
        command.control.send(b"anything else")
        assert command.end()[0] == {"status": 137, "reason": "stopped"}


# --- frames -----------------------------------------------------------------------------------------------


@pytest.fixture
def pair() -> Generator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_a_frame_that_comes_in_pieces_is_put_together(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    sent = frames._LAYOUT.pack(REQUEST, b"abc", 1)
    with open(os.devnull, "rb") as file:
        socket.send_fds(ours, [sent[:3]], [file.fileno()])
    ours.send(sent[3:20])
    ours.send(sent[20:] + frames._LAYOUT.pack(HIDE, b"", 0))
    received = receive_frame(theirs)
    assert received is not None
    assert (received.frame, received.is_complete) == (Frame(kind=REQUEST, session=b"abc"), True)
    (descriptor,) = received.descriptors
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)
    second = receive_frame(theirs)
    assert second is not None
    assert second.frame == Frame(kind=HIDE)
    assert second.descriptors == []


def test_a_frame_cut_by_the_end_is_none_and_its_descriptors_are_closed(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    before = descriptors()
    with open(os.devnull, "rb") as file:
        socket.send_fds(ours, [b"r"], [file.fileno()])
    ours.close()
    assert receive_frame(theirs) is None
    assert descriptors() <= before


class Refusing(socket.socket):
    """A socket whose first reads fail as on macOS when no more files can be opened."""

    failures = 0
    code = errno.EMSGSIZE

    def recvmsg(self, *arguments: int) -> object:  # type: ignore[override]
        if self.failures:
            self.failures -= 1
            raise OSError(self.code, "no")
        return super().recvmsg(*arguments)


def test_a_receiver_without_room_loses_descriptors_and_no_bytes(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    send_frame(ours, Frame(kind=REQUEST), ())
    with Refusing(fileno=os.dup(theirs.fileno())) as source:
        source.failures = 1
        received = receive_frame(source)
        assert received is not None
        assert (received.frame, received.is_complete) == (Frame(kind=REQUEST), False)
        for failures, code in ((10_000, errno.EMFILE), (1, errno.EIO)):
            source.failures, source.code = failures, code
            with pytest.raises(OSError, match="no"):
                receive_frame(source)


# --- the list of processes ---------------------------------------------------------------------------------

MACOS = b"""\
    1     0 Ss    16032   1:02.03 Mon Nov  2 08:14:57 2026     /sbin/launchd
  501     1 S+     4096 123:45.67 Tue Nov  3 09:00:00 2026     /bin/sleep 9 A=1 B=2
  502   501 Z         0   0:00.00 Tue Nov  3 09:00:01 2026     <defunct>
  503   501 ?         0   0:00.00 -                            (sleep)
"""
"""In the format of macOS: print.c of Apple's adv_cmds."""


def test_the_output_of_macos_is_understood() -> None:
    found = process_list._parsed_all(MACOS, own=7)
    assert list(found) == [1, 501, 502]
    sleep = found[501]
    assert (sleep.parent, sleep.is_dead, sleep.memory) == (1, False, 4 << 20)
    assert sleep.cpu_seconds == pytest.approx(123 * 60 + 45.67)
    assert sleep.text.split() == [b"/bin/sleep", b"9", b"A=1", b"B=2"]
    assert sleep.started == time.mktime((2026, 11, 3, 9, 0, 0, 0, 0, -1))
    assert found[502].is_dead
    assert list(process_list._parsed_all(MACOS, own=501)) == [1, 502]


def test_times_of_both_systems_are_understood() -> None:
    times = {"00:00:07": 7, "01:02:03": 3723, "2-00:00:01": 172_801, "0:01.50": 1.5}
    assert {spent: process_list._seconds(spent) for spent in times} == pytest.approx(times)


def test_this_process_and_its_children_are_listed() -> None:
    marked = {**os.environ, MARKER: "here"}
    with subprocess.Popen(["sleep", "100"], env=marked) as sleep:
        try:
            found = list_processes()
        finally:
            sleep.kill()
    assert found[sleep.pid].parent == os.getpid()
    assert f" {MARKER}=here".encode() in found[sleep.pid].text
    assert abs(found[sleep.pid].started - time.time()) < 3600


UNLISTED = {
    "missing": (None, "there is no program"),
    "fails": ("#!/bin/sh\nexit 1\n", "does not list"),
    "leaves us out": ("#!/bin/sh\necho 1 0 S 1 0:00 Mon Nov 2 08:14:57 2026 x\n", "does not list"),
    "hangs": ("#!/bin/sh\nexec sleep 100\n", "did not end"),
    "is no program": ("no program", "cannot be run"),
}


def test_a_list_that_cannot_be_had_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_list, "LIST_SECONDS", 0.2)
    before = descriptors()
    for name, (script, words) in UNLISTED.items():
        place = tmp_path / name
        if script is not None:
            place.write_text(script, encoding="ascii")
            place.chmod(0o755)
        with pytest.raises(Unlisted, match=words):
            list_processes((str(place),))
    assert descriptors() <= before


# --- who belongs to a command ------------------------------------------------------------------------------

NOW = 1_000_000.0
ME = os.getpid()


def listed(*rows: Process) -> Mapping[int, Process]:
    own = one(ME, 1)
    return {process.pid: process for process in (one(1, 0, started=0), own, *rows)}


def one(pid: int, parent: int, *, started: float = NOW, text: bytes = b"", dead: bool = False) -> Process:
    return Process(
        pid=pid, parent=parent, is_dead=dead, memory=1, cpu_seconds=1.0, started=started, text=text
    )


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """The session of each process that the test makes up; others have one of their own."""
    found: dict[int, int] = {}
    monkeypatch.setattr(family_module, "session_of", lambda pid: found.get(pid, pid))
    return found


CHILD, GRANDCHILD, DAEMON, STRANGER = 1 << 23, (1 << 23) + 1, (1 << 23) + 2, (1 << 23) + 3


def test_descendants_belong_and_what_is_in_their_sessions(sessions: dict[int, int]) -> None:
    sessions.update({CHILD: ME, GRANDCHILD: GRANDCHILD, DAEMON: GRANDCHILD})
    family = Family(supervisor=ME, marker="m")
    everyone = listed(one(CHILD, ME), one(GRANDCHILD, CHILD), one(DAEMON, 1), one(STRANGER, 1))
    assert set(family.members(everyone)) == {CHILD, GRANDCHILD, DAEMON}


def test_who_was_seen_once_still_belongs_unless_the_number_is_another_s(sessions: dict[int, int]) -> None:
    family = Family(supervisor=ME, marker="m")
    family.members(listed(one(CHILD, ME), one(DAEMON, CHILD)))
    assert set(family.members(listed(one(DAEMON, 1)))) == {DAEMON}
    assert set(family.members(listed(one(DAEMON, 1, started=NOW + 60)))) == set()


def test_who_carries_the_marker_belongs(sessions: dict[int, int]) -> None:
    family = Family(supervisor=ME, marker="word")
    marked = f" sleep 9 {MARKER}=word".encode()
    assert set(family.members(listed(one(DAEMON, 1, text=marked)))) == {DAEMON}
    assert set(Family(supervisor=ME, marker="other").members(listed(one(DAEMON, 1, text=marked)))) == set()


def test_nobody_older_belongs_nor_anybody_in_the_session_of_one(sessions: dict[int, int]) -> None:
    marked = f" sleep 9 {MARKER}=m".encode()
    family = Family(supervisor=ME, marker="m")
    assert family.members(listed(one(STRANGER, 1, started=NOW - 60, text=marked))) == {}
    sessions.update({DAEMON: STRANGER, STRANGER: STRANGER, CHILD: STRANGER})
    everyone = listed(one(STRANGER, 1, started=NOW - 60), one(DAEMON, 1, text=marked), one(CHILD, STRANGER))
    assert set(family.members(everyone)) == {DAEMON}


def test_no_ancestor_of_the_supervisor_belongs_whatever_it_says(sessions: dict[int, int]) -> None:
    marked = f" {MARKER}=m".encode()
    everyone = dict(listed(one(STRANGER, 1, text=marked)))
    everyone[ME] = one(ME, STRANGER, text=marked)
    assert Family(supervisor=ME, marker="m").members(everyone) == {}


def test_the_session_of_a_dead_supervisor_counts_until_its_number_is_given_away(
    sessions: dict[int, int],
) -> None:
    gone_before = 1 << 24
    sessions.update({CHILD: gone_before, gone_before: gone_before})
    parent = {os.getppid(): one(os.getppid(), 1)}
    family = Family(supervisor=gone_before, marker="m")
    assert set(family.members({**listed(one(CHILD, 1)), **parent})) == {CHILD}
    fresh = Family(supervisor=gone_before, marker="m")
    assert fresh.members({**listed(one(CHILD, 1), one(gone_before, 1)), **parent}) == {}


def test_the_dead_that_we_are_about_to_wait_for_do_not_count() -> None:
    rows = listed(one(CHILD, ME, dead=True), one(DAEMON, CHILD, dead=True))
    usage = used_by({pid: rows[pid] for pid in (CHILD, DAEMON)})
    assert (usage.processes, usage.memory, usage.cpu_seconds) == (1, 2, 2.0)


# --- killing -----------------------------------------------------------------------------------------------


@pytest.fixture
def unlisted(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Have so many looks fail."""
    left = [0]

    def look() -> Mapping[int, Process]:
        if left[0]:
            left[0] -= 1
            raise Unlisted("no more processes")
        return list_processes()

    def fail(times: int) -> None:
        left[0] = times

    monkeypatch.setattr(killing, "list_processes", look)
    monkeypatch.setattr("mcp_toolserver.runtime.sandbox.posix.watch.list_processes", look)
    return fail


def test_the_group_is_killed_where_nothing_can_be_listed(unlisted: Callable[[int], None]) -> None:
    unlisted(2)
    with subprocess.Popen(["sleep", "100"], process_group=0) as main:
        assert end_family(Family(supervisor=ME, marker="m"), lambda: main.pid)
        assert main.wait() == -signal.SIGKILL
    unlisted(1)
    assert end_family(Family(supervisor=ME, marker="m"), lambda: 0)


def test_what_does_not_die_is_said_to_be_there(
    unlisted: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(killing, "KILL_SECONDS", 0.1)
    unlisted(10_000)
    assert not end_family(Family(supervisor=ME, marker="m"), lambda: 0)


def test_a_process_of_another_user_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    rows = listed(one(CHILD, ME))
    monkeypatch.setattr(killing, "list_processes", lambda: rows)
    monkeypatch.setattr(os, "kill", refuse)
    assert end_family(Family(supervisor=ME, marker="m"), lambda: 0)


def test_a_command_that_cannot_be_watched_is_ended(unlisted: Callable[[int], None]) -> None:
    watch = Watch(Family(supervisor=ME, marker="m"), CommandBounds())
    assert watch.look_if_due() is None
    unlisted(100)
    said = None
    for _ in range(1000):
        time.sleep(0.01)
        if said := watch.look_if_due():
            break
    assert said == "more than can be watched: no more processes"


# --- confined commands, where the sandbox is assumed to hold ---------------------------------------------


@dataclass(frozen=True)
class Confined:
    """A broker whose commands are confined."""

    broker: Broker
    folder: Path

    def run(self, script: str, session: str = "") -> tuple[dict[str, object], str]:
        request = Script(script=script, timeout=PATIENCE, session=session)
        return outcome(self.broker, request, cwd=str(self.folder / "root"))

    @property
    def folders(self) -> list[Path]:
        """Those for temporary files."""
        return list((self.folder / "state/scratch").glob("*/*"))

    @property
    def arguments(self) -> list[str]:
        """What sandbox-exec was given last."""
        return (self.folder / "state/arguments").read_text(encoding="utf-8").split("\0")


@pytest.fixture(scope="module")
def confined(tmp_path_factory: pytest.TempPathFactory) -> Generator[Confined]:
    folder = tmp_path_factory.mktemp("confined")
    with confined_broker(wanted(folder)) as at:
        assert (at.proof.commands, at.proof.shares_session) == ("seatbelt", True)
        yield Confined(at, folder)
    assert list((folder / "state/scratch").iterdir()) == []


def test_a_confined_command_is_started_behind_the_profile_of_its_folders(confined: Confined) -> None:
    assert confined.run("echo $TMPDIR; exit 5")[0] == {"status": 5, "reason": "exited"}
    given = confined.arguments
    assert given[0] == "-p"
    assert given[1].startswith("(version 1)")
    assert any(word.endswith(f"={confined.folder}/root") for word in given)
    assert any(f"={confined.folder}/state/scratch/" in word for word in given)


def test_a_confined_command_gets_the_standard_descriptors_only(confined: Confined) -> None:
    listing = "for d in /proc/$BASHPID/fd/*; do [ -e $d ] && echo ${d##*/}; done; true"
    assert set(confined.run(listing)[1].split()) <= {"0", "1", "2", "255"}


def test_a_long_script_runs_confined_too(confined: Confined) -> None:
    script = f"# {'x' * 200_000}\necho $((1 + 1))"
    assert confined.run(script) == (ENDED, "2\n")


def test_a_confined_command_without_a_session_has_a_folder_of_its_own(confined: Confined) -> None:
    script = (
        "echo x > $TMPDIR/file && mkdir $TMPDIR/closed && chmod 0 $TMPDIR/closed && echo $TMPDIR $GOCACHE"
    )
    first, second = confined.run(script)[1].split(), confined.run(script)[1].split()
    assert first[0] != second[0]
    assert first[1] == f"{first[0]}/.go-build"
    assert not os.path.lexists(first[0])
    assert not os.path.lexists(second[0])


async def test_the_commands_and_file_tools_of_a_session_share_a_folder(confined: Confined) -> None:
    at = confined.broker
    assert confined.run("echo x > $TMPDIR/file; echo $TMPDIR", "one")[1].strip() == at.temporary_path("one")
    assert confined.run("cat $TMPDIR/file", "one")[1] == "x\n"
    assert confined.run("ls $TMPDIR", "two")[1] == ""
    folder = at.temporary_folder("one")
    assert folder is not None
    assert os.listdir(folder) == ["file"]
    assert not os.get_inheritable(folder)
    os.close(folder)
    at.end_session("one")
    at.end_session("two", when_unused=True)
    await until(lambda: confined.folders == [])
    assert confined.run("ls $TMPDIR", "one")[1] == ""
    at.end_session("one")
    at.end_session("never seen")
    await until(lambda: confined.folders == [])


async def test_a_folder_goes_with_the_last_command_of_its_session(confined: Confined) -> None:
    at, folder = confined.broker, str(confined.folder / "root")
    reading, writing = os.pipe()
    script = Script(script="echo $TMPDIR; read; echo x > $TMPDIR/late", timeout=60, session="one")
    with asked(at, script, cwd=folder, stdin=reading) as command:
        path = await asyncio.to_thread(command.line)
        at.end_session("one")
        at.check()
        assert os.path.isdir(path)
        os.write(writing, b"\n")
        assert (await asyncio.to_thread(command.end))[0] == ENDED
    os.close(reading)
    os.close(writing)
    await until(lambda: confined.folders == [])


def test_a_broker_has_no_folder_where_commands_share_none() -> None:
    with broker() as at:
        assert at.temporary_folder("one") is None
        assert at.proof.shares_session is False


async def test_a_sandbox_that_cannot_be_set_up_runs_nothing_and_says_so(tmp_path: Path) -> None:
    spec = wanted(tmp_path)
    with confined_broker(spec) as at:
        (tmp_path / "broken").touch()
        last, output = outcome(at, "echo ran > ran; exit 0", cwd=spec.roots[0])
        assert (last, output) == ({"sandbox_failed": NOT_SET_UP}, "")
        commands = Commands(at, Anywhere(), OutputStore(str(tmp_path / "outputs")))
        with pytest.raises(SandboxUnavailable):
            await Bench(commands, at).run("echo ran > ran", cwd=spec.roots[0])
        await commands.aclose()
    assert not (tmp_path / "root/ran").exists()


async def test_what_rules_hide_is_in_the_profile_of_the_next_command(tmp_path: Path) -> None:
    spec = wanted(tmp_path)
    root = tmp_path / "root"

    def hidden(confined: Confined) -> set[str]:
        assert confined.run("true")[0] == ENDED
        return {word.partition("=")[2] for word in confined.arguments if word.endswith(".key")}

    (root / "a.key").touch()
    with confined_broker(spec) as at:
        confined = Confined(at, tmp_path)
        assert hidden(confined) == set()
        at.hide(["*.key"])
        assert hidden(confined) == {f"{root}/a.key"}
        (root / "b.key").touch()
        assert hidden(confined) == {f"{root}/a.key", f"{root}/b.key"}
        for number in range(MOST_HIDDEN):
            (root / f"{number}.key").touch()
        last, output = confined.run("echo ran")
        assert (last.keys(), output) == ({"sandbox_failed"}, "")


async def test_the_next_server_removes_the_folders_of_one_that_was_killed(tmp_path: Path) -> None:
    spec = wanted(tmp_path)
    with confined_broker(spec) as at:
        assert (
            outcome(at, Script(script="echo x > $TMPDIR/file", timeout=9, session="a"), cwd=spec.roots[0])[0]
            == ENDED
        )
        assert temp_folder.sweep(spec.state) == 0
        os.kill(at.pid, signal.SIGKILL)
        os.waitpid(at.pid, 0)
        await until(lambda: temp_folder.sweep(spec.state) == 1)
    assert os.listdir(tmp_path / "state/scratch") == []
