"""Detects whether the processes of a command have run, from the kernel's counters of each thread.

A thread that sleeps cannot make a system call without being given a processor, and when it sleeps again the
kernel has counted one more context switch. So where every thread sleeps and no count has changed, the
processes have done nothing at all.
"""

import os

from mcp_toolserver.runtime.sandbox.broker.resource_usage import descendants_by_id

_ROOM = 1 << 13
_COUNTS = (b"voluntary_ctxt_switches:", b"nonvoluntary_ctxt_switches:")

Activity = frozenset[tuple[int, bytes]] | None
"""Of every thread the id and what the kernel counts; None when one of them runs, has just ended, or cannot be
asked."""


def activity_of(ancestor: int) -> Activity:
    """What the descendants of `ancestor` have done so far, itself not included."""
    seen: set[tuple[int, bytes]] = set()
    try:
        for process in descendants_by_id(ancestor):
            for thread in os.listdir(f"/proc/{process}/task"):
                lines = _status_lines(f"/proc/{process}/task/{thread}/status")
                if len(lines) != 1 + len(_COUNTS) or b"R (" in lines[0]:
                    return None
                seen.add((int(thread), b" ".join(lines)))
    except OSError:
        # What ends meanwhile has run, and may have left a child that this walk did not meet.
        return None
    return frozenset(seen)


def has_run(before: Activity, after: Activity) -> bool:
    """Whether anything may have happened between the two."""
    return before is None or after is None or before != after


def _status_lines(path: str) -> list[bytes]:
    """The lines of a status file that matter here."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        lines = os.read(file, _ROOM).splitlines()
    finally:
        os.close(file)
    return [line for line in lines if line.startswith((b"State:", *_COUNTS))]
