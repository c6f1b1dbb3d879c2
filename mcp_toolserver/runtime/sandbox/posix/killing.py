"""Ends every process of a command that looks at the list of processes find.

A process that was stopped cannot fork. So all are stopped until a look finds no new one, and then killed. A
process that another user owns, which this one may not signal, is left alone.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable

from mcp_toolserver.runtime.sandbox.posix.family import Family
from mcp_toolserver.runtime.sandbox.posix.process_list import Process, Unlisted, list_processes

KILL_SECONDS = 5.0
"""How long the report may wait for processes that do not die."""

_PAUSE = 0.02
"""Seconds between the kill and the look whether it worked; and between looks that fail."""

Reap = Callable[[], int]
"""Waits for children that have ended. Returns the child that leads the process group of the command, unless
it was waited for, so that its number may be of another; then 0."""


def end_family(family: Family, reap: Reap) -> bool:
    """Kill all of `family`, at most for `KILL_SECONDS`; returns whether none is left."""
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
            out_of_reach |= {pid for pid in fresh if not _signalled(members[pid], signal.SIGSTOP)}
            stopped |= fresh
            continue
        for pid in living:
            _signalled(members[pid], signal.SIGKILL)
        stopped.clear()
        time.sleep(_PAUSE)
    return False


def _signalled(process: Process, number: signal.Signals) -> bool:
    """Signal a process that was listed just now; False if this user may not."""
    try:
        os.kill(process.pid, number)
    except PermissionError:
        return False
    except ProcessLookupError:
        pass
    return True
