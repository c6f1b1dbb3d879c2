"""The processes of a command: which they are, what they use together, and how all of them are ended.

`ps` lists the processes of this machine. Its keywords pid, ppid, state, rss, time, lstart and command exist
on macOS (keyword.c of Apple's adv_cmds) and on Linux (procps). Both escape control characters in `command`,
so each process has one line.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mcp_toolserver.runtime.sandbox.broker.limit_settings import CommandBounds
from mcp_toolserver.runtime.sandbox.broker.resource_limits import Watch
from mcp_toolserver.runtime.sandbox.broker.resource_usage import Unlisted, Usage

MARKER = "MCP_TOOLSERVER_COMMAND"
"""The variable in the environment of each program that names its command."""

KILL_SECONDS = 5.0
"""How long the report may wait for processes that do not die."""

SOONEST = 0.05
"""Seconds to the first look at what a command uses, and the least between two."""
LATEST = 0.5
"""The most between two, unless looking costs too much."""

_PAUSE = 0.02
"""Seconds between the kill and the look whether it worked; and between looks that fail."""

_TOLERANCE = 1.0
"""Seconds by which two looks may differ on when a process started: Linux counts from a boot time that it
computes anew."""

Reap = Callable[[], int]
"""Waits for children that have ended. Returns the child that leads the process group of the command, unless
it was waited for, so that its number may be of another; then 0."""


# --- the list of all processes -----------------------------------------------------------------------------

PLACES = ("/bin/ps", "/usr/bin/ps")
LIST_SECONDS = 5.0
"""How long `ps` may take."""

_COLUMNS = ("pid", "ppid", "state", "rss", "time", "lstart", "command")
_FLAGS = ("-E", "-S") if sys.platform == "darwin" else ("e", "S")
"""Environments as well, and the time of children that were waited for: for macOS and for procps."""

_LINE = re.compile(
    rb"\s*(\d+)\s+(\d+)\s+([A-Za-z])\S*\s+(\d+)\s+([\d:.-]+)"
    rb"\s+\S+\s+([A-Z][a-z]{2}\s+\d+\s+\d+:\d+:\d+\s+\d{4})(.*)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """A process when `ps` looked."""

    pid: int
    parent: int
    is_dead: bool
    """Whether it has ended, and its parent has not waited for it."""
    memory: int
    """Bytes in memory, shared or not."""
    cpu_seconds: float
    """Of its own, and of the children that it waited for."""
    started: float
    """Seconds since the epoch, whole ones."""
    text: bytes
    """Arguments and environment, separated by spaces, as far as this user may read them."""


def list_processes(places: tuple[str, ...] = PLACES) -> dict[int, Process]:
    """All processes by number, without the `ps` that lists them.

    Raises:
        Unlisted: `ps` is missing, cannot be started or does not end.
    """
    program = next((place for place in places if os.access(place, os.X_OK)), None)
    if program is None:
        raise Unlisted(f"there is no program to list processes at {' or '.join(places)}")
    try:
        found = _listed(program)
    except OSError as error:
        raise Unlisted(f"{program} cannot be run: {error.strerror}") from None
    if os.getpid() not in found:
        raise Unlisted(f"{program} does not list the process that asks")
    return found


def _listed(program: str) -> dict[int, Process]:
    """What it prints. Raises: OSError: it cannot be run, or has no end."""
    columns = (word for column in _COLUMNS for word in ("-o", f"{column}="))
    with subprocess.Popen(
        (program, "-A", "-w", "-w", *columns, *_FLAGS),
        env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as listing:
        try:
            output, _ = listing.communicate(timeout=LIST_SECONDS)
        except subprocess.TimeoutExpired:
            raise TimeoutError(None, f"it did not end within {LIST_SECONDS:.0f} s") from None
        finally:
            listing.kill()
    return _parsed_all(output, listing.pid)


def _parsed_all(output: bytes, own: int) -> dict[int, Process]:
    """The processes in what `ps` printed, but its own."""
    found: dict[int, Process] = {}
    for line in output.splitlines():
        process = _parsed(line)
        if process is not None and process.pid != own:
            found.setdefault(process.pid, process)
    return found


def _parsed(line: bytes) -> Process | None:
    """The process of a line; None for one without a start time, which is about to end."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    pid, parent, state, memory, spent, started, text = found.groups()
    return Process(
        pid=int(pid),
        parent=int(parent),
        is_dead=state == b"Z",
        memory=int(memory) << 10,
        cpu_seconds=_seconds(spent.decode()),
        # It is local time.
        started=time.mktime(time.strptime(started.decode(), "%b %d %H:%M:%S %Y")),
        text=text,
    )


def _seconds(spent: str) -> float:
    """`1-02:03:04` as Linux prints it, or `123:45.67` as macOS does."""
    days, _, rest = spent.rpartition("-")
    seconds = 0.0
    for part in rest.split(":"):
        seconds = seconds * 60 + float(part)
    return seconds + int(days or 0) * 86_400


# --- those of one command ----------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Family:
    """The processes of one command."""

    supervisor: int
    """The leader of the session in which the command starts."""
    marker: str
    """A word that nobody can guess."""
    known: dict[int, float] = field(default_factory=dict[int, float])
    """What was found before: when each process started."""

    def members(self, everyone: Mapping[int, Process]) -> dict[int, Process]:
        """The processes in the list `everyone`, taken by this process, that belong to the command."""
        sessions = {pid: session for pid in everyone if (session := session_of(pid)) >= 0}
        if not self._is_own and self.supervisor in everyone:
            # Its number was given away, which happens only when no process is left in its session.
            sessions = {pid: session for pid, session in sessions.items() if session != self.supervisor}
        young = self._young(everyone)
        by_session: dict[int, list[int]] = {}
        for pid, session in sessions.items():
            by_session.setdefault(session, []).append(pid)
        children: dict[int, list[int]] = {}
        for pid, process in young.items():
            children.setdefault(process.parent, []).append(pid)
        # In a session are its maker and descendants of it. One with a process that is older is not of the
        # command.
        own_sessions = {
            session: pids
            for session, pids in by_session.items()
            if all(pid in young or pid == self.supervisor for pid in pids)
        }
        found: dict[int, Process] = {}
        waiting = [pid for pid, process in young.items() if self._is_seed(process, sessions.get(pid))]
        while waiting:
            pid = waiting.pop()
            if pid in young and pid not in found:
                found[pid] = young[pid]
                waiting += children.get(pid, ())
                waiting += own_sessions.get(sessions.get(pid, -1), ())
        self.known = {pid: process.started for pid, process in found.items()}
        return found

    def _young(self, everyone: Mapping[int, Process]) -> dict[int, Process]:
        """The processes that are no older than the supervisor, or than this process once that is gone, and
        neither it nor one that it descends from."""
        elder = everyone.get(self.supervisor) if self._is_own else None
        elder = elder or everyone.get(os.getppid(), everyone[os.getpid()])
        excluded = {0, 1, self.supervisor}
        pid = os.getpid()
        while pid in everyone and pid > 1:
            excluded.add(pid)
            pid = everyone[pid].parent
        return {
            pid: process
            for pid, process in everyone.items()
            if pid not in excluded and process.started >= elder.started - _TOLERANCE
        }

    @property
    def _is_own(self) -> bool:
        """Whether this process is the supervisor."""
        return self.supervisor == os.getpid()

    def _is_seed(self, process: Process, session: int | None) -> bool:
        started = self.known.get(process.pid)
        return (
            session == self.supervisor
            or (self._is_own and process.parent == self.supervisor)
            or (started is not None and abs(started - process.started) <= _TOLERANCE)
            or f" {MARKER}={self.marker}".encode() in process.text
        )


def session_of(pid: int) -> int:
    """The session of a process; -1 when it is gone. (`ps` of macOS prints an address instead.)"""
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def watch_family(family: Family, bounds: CommandBounds) -> Watch:
    return Watch(bounds, lambda: used_by(family.members(list_processes())), soonest=SOONEST, latest=LATEST)


def used_by(members: Mapping[int, Process]) -> Usage:
    """What they use together; threads are not known."""
    return Usage(
        # What this process is about to wait for holds no number for long.
        processes=sum(not one.is_dead or one.parent != os.getpid() for one in members.values()),
        threads=0,
        memory=sum(one.memory for one in members.values()),
        cpu_seconds=sum(one.cpu_seconds for one in members.values()),
    )


def end_family(family: Family, reap: Reap) -> bool:
    """Kill all of `family` that looks find, at most for `KILL_SECONDS`; returns whether none is left.

    A process that was stopped cannot fork. So all are stopped until a look finds no new one, and then killed.
    One that another user owns, which this process may not signal, is left alone.
    """
    deadline = time.monotonic() + KILL_SECONDS
    stopped: set[int] = set()
    out_of_reach: set[int] = set()
    while time.monotonic() < deadline:
        main = reap()
        try:
            members = family.members(list_processes())
        except Unlisted:
            # There may be too many processes to start one more. Those of the group make room.
            if main:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(main, signal.SIGKILL)
            time.sleep(_PAUSE)
            continue
        living = {pid for pid, process in members.items() if not process.is_dead} - out_of_reach
        if not living:
            return True
        if fresh := living - stopped:
            out_of_reach |= {pid for pid in fresh if not _signalled(pid, signal.SIGSTOP)}
            stopped |= fresh
            continue
        for pid in living:
            _signalled(pid, signal.SIGKILL)
        stopped.clear()
        time.sleep(_PAUSE)
    return False


def _signalled(pid: int, number: signal.Signals) -> bool:
    """Signal a process that was listed just now; False if this user may not."""
    try:
        os.kill(pid, number)
    except PermissionError:
        return False
    except ProcessLookupError:
        pass
    return True
