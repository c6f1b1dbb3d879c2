"""The process broker for POSIX systems, run on Linux: what `test_broker.py` does not ask of both brokers."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from mcp_toolserver.errors import SandboxUnavailable
from mcp_toolserver.runtime.processes import broker_client
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.commands import Commands
from mcp_toolserver.runtime.sandbox.broker import temp_folder
from mcp_toolserver.runtime.sandbox.broker.limit_settings import CommandBounds
from mcp_toolserver.runtime.sandbox.broker.messages import CHECK, END, Script
from mcp_toolserver.runtime.sandbox.broker.resource_usage import Unlisted
from mcp_toolserver.runtime.sandbox.mounts.hidden_paths import MOST_HIDDEN
from mcp_toolserver.runtime.sandbox.posix import family as families
from mcp_toolserver.runtime.sandbox.posix.family import (
    MARKER,
    Family,
    Process,
    end_family,
    list_processes,
    watch_family,
)
from mcp_toolserver.runtime.sandbox.posix.supervisor import NOT_SET_UP
from mcp_toolserver.stores.saved_outputs import OutputStore
from tests.macos.assumed_sandbox import confined_broker, wanted
from tests.support.processes import (
    PATIENCE,
    Anywhere,
    Bench,
    asked,
    broker,
    outcome,
    until,
)
from tests.support.snapshot import descriptors

ENDED = {"status": 0, "reason": "exited"}


@pytest.fixture(autouse=True)
def layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_client, "process_layer", lambda: "posix")


def test_a_check_is_answered_at_once_also_in_a_row() -> None:
    with broker() as at, asked(at, "sleep 100") as command:
        assert command.next() == {"started": True}
        command.control.send(CHECK + CHECK)
        assert [command.next(), command.next()] == 2 * [{"checked": True}]
        command.control.send(b"anything else")
        assert command.end()[0] == {"status": 137, "reason": "stopped"}


MACOS = b"""\
    1     0 Ss    16032   1:02.03 Mon Nov  2 08:14:57 2026     /sbin/launchd
  501     1 S+     4096 123:45.67 Tue Nov  3 09:00:00 2026     /bin/sleep 9 A=1 B=2
  502   501 Z         0   0:00.00 Tue Nov  3 09:00:01 2026     <defunct>
  503   501 ?         0   0:00.00 -                            (sleep)
"""
"""In the format of macOS: print.c of Apple's adv_cmds."""


def test_the_output_of_both_systems_is_understood() -> None:
    found = families._parsed_all(MACOS, own=7)
    assert list(found) == [1, 501, 502]
    sleep = found[501]
    assert (sleep.parent, sleep.is_dead, sleep.memory) == (1, False, 4 << 20)
    assert sleep.cpu_seconds == pytest.approx(123 * 60 + 45.67)
    assert sleep.text.split() == [b"/bin/sleep", b"9", b"A=1", b"B=2"]
    assert sleep.started == time.mktime((2026, 11, 3, 9, 0, 0, 0, 0, -1))
    assert found[502].is_dead
    assert list(families._parsed_all(MACOS, own=501)) == [1, 502]
    times = {"00:00:07": 7, "01:02:03": 3723, "2-00:00:01": 172_801, "0:01.50": 1.5}
    assert {spent: families._seconds(spent) for spent in times} == pytest.approx(times)


UNLISTED = {
    "missing": (None, "there is no program"),
    "fails": ("#!/bin/sh\nexit 1\n", "does not list"),
    "leaves us out": ("#!/bin/sh\necho 1 0 S 1 0:00 Mon Nov 2 08:14:57 2026 x\n", "does not list"),
    "hangs": ("#!/bin/sh\nexec sleep 100\n", "did not end"),
    "is no program": ("no program", "cannot be run"),
}


def test_a_list_that_cannot_be_had_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "LIST_SECONDS", 0.2)
    before = descriptors()
    for name, (script, words) in UNLISTED.items():
        place = tmp_path / name
        if script is not None:
            place.write_text(script, encoding="ascii")
            place.chmod(0o755)
        with pytest.raises(Unlisted, match=words):
            list_processes((str(place),))
    assert descriptors() <= before


NOW = 1_000_000.0
ME, PARENT = os.getpid(), os.getppid()
CHILD, GRANDCHILD, DAEMON, STRANGER, GONE = range(1 << 23, (1 << 23) + 5)
OLD = NOW - 60
MARKED = f" sleep 9 {MARKER}=word".encode()


def one(pid: int, parent: int = 1, *, started: float = NOW, text: bytes = b"", dead: bool = False) -> Process:
    return Process(
        pid=pid, parent=parent, is_dead=dead, memory=1, cpu_seconds=1.0, started=started, text=text
    )


def listed(*rows: Process) -> Mapping[int, Process]:
    return {process.pid: process for process in (one(1, 0, started=0), one(PARENT), one(ME), *rows)}


FAMILIES: dict[str, tuple[dict[int, int], int, tuple[Process, ...], set[int]]] = {
    "descendants and what is in their sessions": (
        *({CHILD: ME, DAEMON: GRANDCHILD}, ME),
        (one(CHILD, ME), one(GRANDCHILD, CHILD), one(DAEMON), one(STRANGER)),
        {CHILD, GRANDCHILD, DAEMON},
    ),
    "who carries the marker": ({}, ME, (one(DAEMON, text=MARKED),), {DAEMON}),
    "nobody older": ({}, ME, (one(STRANGER, started=OLD, text=MARKED),), set()),
    "nobody in the session of somebody older": (
        *({DAEMON: STRANGER, CHILD: STRANGER}, ME),
        (one(STRANGER, started=OLD), one(DAEMON, text=MARKED), one(CHILD, STRANGER)),
        {DAEMON},
    ),
    "no ancestor of the supervisor": (
        *({}, ME),
        (one(STRANGER, text=MARKED), one(ME, STRANGER, text=MARKED)),
        set(),
    ),
    "the session of a dead supervisor": ({CHILD: GONE}, GONE, (one(CHILD),), {CHILD}),
    "no session whose number was given away": ({CHILD: GONE}, GONE, (one(CHILD), one(GONE)), set()),
}
"""The session of each process that has none of its own, the supervisor, who is listed, who belongs."""


def test_who_belongs_to_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong: dict[str, set[int]] = {}
    for name, (sessions, supervisor, rows, expected) in FAMILIES.items():
        monkeypatch.setattr(families, "session_of", lambda pid, known=sessions: known.get(pid, pid))
        found = set(Family(supervisor=supervisor, marker="word").members(listed(*rows)))
        if found != expected:
            wrong[name] = found
    assert not wrong


def test_who_was_seen_once_still_belongs_unless_the_number_is_another_s() -> None:
    family = Family(supervisor=ME, marker="m")
    assert family.members(listed(one(DAEMON, text=MARKED))) == {}
    family.members(listed(one(CHILD, ME), one(DAEMON, CHILD)))
    assert set(family.members(listed(one(DAEMON)))) == {DAEMON}
    assert set(family.members(listed(one(DAEMON, started=NOW + 60)))) == set()


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Have so many looks fail."""
    left = [0]

    def look() -> Mapping[int, Process]:
        left[0] -= 1
        if left[0] >= 0:
            raise Unlisted("no more processes")
        return list_processes()

    monkeypatch.setattr(families, "list_processes", look)
    return lambda times: left.__setitem__(0, times)


def test_the_group_is_killed_where_nothing_can_be_listed_and_what_may_be_left_is_said(
    fail: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of a supervisor that is not there: the family of this process has the brokers that other tests share.
    fail(2)
    with subprocess.Popen(["sleep", "100"], process_group=0) as main:
        assert end_family(Family(supervisor=GONE, marker="m"), lambda: main.pid)
        assert main.wait() == -signal.SIGKILL
    fail(1)
    assert end_family(Family(supervisor=GONE, marker="m"), lambda: 0)
    monkeypatch.setattr(families, "KILL_SECONDS", 0.1)
    fail(10_000)
    assert not end_family(Family(supervisor=GONE, marker="m"), lambda: 0)


async def test_a_command_that_cannot_be_watched_is_ended(fail: Callable[[int], None]) -> None:
    looks = watch_family(Family(supervisor=ME, marker="m"), CommandBounds())
    assert looks.look_if_due() is None
    fail(100)
    said = None

    def is_ended() -> bool:
        nonlocal said
        said = looks.look_if_due()
        return said is not None

    await until(is_ended)
    assert said == "more than can be watched: no more processes"


# --- confined commands, where the sandbox is assumed to hold ---------------------------------------------


@dataclass(frozen=True)
class Confined:
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
        return (self.folder / "state/arguments").read_text(encoding="utf-8").split("\0")


@pytest.fixture
def confined(tmp_path: Path) -> Generator[Confined]:
    with confined_broker(wanted(tmp_path)) as at:
        yield Confined(at, tmp_path)


def test_a_confined_command_is_started_behind_the_profile_of_its_folders(confined: Confined) -> None:
    assert (confined.broker.proof.commands, confined.broker.proof.shares_session) == ("seatbelt", True)
    assert confined.run("echo $TMPDIR; exit 5")[0] == {"status": 5, "reason": "exited"}
    given = confined.arguments
    assert given[0] == "-p"
    assert given[1].startswith("(version 1)")
    assert any(word.endswith(f"={confined.folder}/root") for word in given)
    assert any(f"={confined.folder}/state/scratch/" in word for word in given)
    listing = "for d in /proc/$BASHPID/fd/*; do [ -e $d ] && echo ${d##*/}; done; true"
    assert set(confined.run(listing)[1].split()) <= {"0", "1", "2", "255"}
    long = f"# {'x' * 200_000}\necho $((1 + 1))"
    assert confined.run(long) == (ENDED, "2\n")


async def test_temporary_folders_last_as_long_as_their_command_or_session(confined: Confined) -> None:
    at, scratch = confined.broker, confined.folder / "state/scratch"
    script = (
        "echo x > $TMPDIR/file && mkdir $TMPDIR/closed && chmod 0 $TMPDIR/closed && echo $TMPDIR $GOCACHE"
    )
    first, second = confined.run(script)[1].split(), confined.run(script)[1].split()
    assert first[0] != second[0]
    assert first[1] == f"{first[0]}/.caches/go-build"
    assert confined.folders == []
    # The commands and file tools of a session share one.
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
    at.end_session("never seen")
    await until(lambda: confined.folders == [])
    # It goes with the last command of the session.
    reading, writing = os.pipe()
    waits = Script(script="echo $TMPDIR; read; echo x > $TMPDIR/late", timeout=60, session="one")
    with asked(at, waits, cwd=str(confined.folder / "root"), stdin=reading) as command:
        path = await asyncio.to_thread(command.line)
        at.end_session("one")
        at.check()
        assert os.path.isdir(path)
        os.write(writing, b"\n")
        assert (await asyncio.to_thread(command.end))[0] == ENDED
    os.close(reading)
    os.close(writing)
    await until(lambda: confined.folders == [])
    at.close()
    assert list(scratch.iterdir()) == []


def test_no_folder_ends_with_a_session_whose_name_leads_elsewhere(confined: Confined) -> None:
    at = confined.broker
    assert at.proof.shares_session
    at._requests.send(END + b"../../../root")
    assert at._requests.recv(1)
    at.check()
    assert (confined.folder / "root").is_dir()


async def test_a_sandbox_that_cannot_be_set_up_runs_nothing_and_says_so(confined: Confined) -> None:
    at, root = confined.broker, str(confined.folder / "root")
    (confined.folder / "broken").touch()
    assert confined.run("echo ran > ran; exit 0") == ({"sandbox_failed": NOT_SET_UP}, "")
    commands = Commands(at, Anywhere(), OutputStore(str(confined.folder / "outputs")))
    with pytest.raises(SandboxUnavailable):
        await Bench(commands, at).run("echo ran > ran", cwd=root)
    await commands.aclose()
    assert os.listdir(root) == []


def test_what_rules_hide_is_in_the_profile_of_the_next_command(confined: Confined) -> None:
    root = confined.folder / "root"

    def hidden() -> set[str]:
        assert confined.run("true")[0] == ENDED
        return {word.partition("=")[2] for word in confined.arguments if word.endswith(".key")}

    (root / "a.key").touch()
    assert hidden() == set()
    confined.broker.hide(["*.key"])
    assert hidden() == {f"{root}/a.key"}
    (root / "b.key").touch()
    assert hidden() == {f"{root}/a.key", f"{root}/b.key"}
    for number in range(MOST_HIDDEN):
        (root / f"{number}.key").touch()
    last, output = confined.run("echo ran")
    assert (last.keys(), output) == ({"sandbox_failed"}, "")


async def test_the_next_server_removes_the_folders_of_one_that_was_killed(confined: Confined) -> None:
    pid, state = confined.broker.pid, str(confined.folder / "state")
    assert confined.run("echo x > $TMPDIR/file", "a")[0] == ENDED
    assert temp_folder.sweep(state) == 0
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    await until(lambda: temp_folder.sweep(state) == 1)
    assert confined.folders == []
