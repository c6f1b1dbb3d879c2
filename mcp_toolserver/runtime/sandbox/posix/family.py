"""Which processes belong to a command, and what they use together."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from mcp_toolserver.runtime.sandbox.broker.resource_usage import Usage
from mcp_toolserver.runtime.sandbox.posix.process_list import Process

MARKER = "MCP_TOOLSERVER_COMMAND"
"""The variable in the environment of each program that names its command."""

_TOLERANCE = 1.0
"""Seconds by which two looks may differ on when a process started: Linux counts from a boot time that it
computes anew."""


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
            or self._is_marked(process)
        )

    def _is_marked(self, process: Process) -> bool:
        return f" {MARKER}={self.marker}".encode() in process.text


def session_of(pid: int) -> int:
    """The session of a process; -1 when it is gone. (`ps` of macOS prints an address instead.)"""
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def used_by(members: Mapping[int, Process]) -> Usage:
    """What they use together; threads are not known."""
    return Usage(
        # What this process is about to wait for holds no number for long.
        processes=sum(not one.is_dead or one.parent != os.getpid() for one in members.values()),
        threads=0,
        memory=sum(one.memory for one in members.values()),
        cpu_seconds=sum(one.cpu_seconds for one in members.values()),
    )
