"""Killing a process tree by looking for it, where the kernel has no signal scopes.

It stops every descendant it sees until it sees no new one, then kills them all: a stopped process cannot
fork. A chain of processes that each fork and exit at once can outrun it.
"""

import contextlib
import os
import signal

from mcp_toolserver.runtime.sandbox.broker.resource_usage import all_processes

ROUNDS = 100


def sweep(ancestor: int) -> None:
    """Kill what descends from `ancestor`, which should be a subreaper or what it leaves escapes."""
    for pid in signal_all(ancestor, signal.SIGSTOP) | descendants(ancestor):
        _send(pid, signal.SIGKILL)


def signal_all(ancestor: int, number: signal.Signals) -> set[int]:
    """Signal what descends from `ancestor` until a look finds nothing new; returns what was found."""
    found: set[int] = set()
    for _ in range(ROUNDS):
        fresh = descendants(ancestor) - found
        if not fresh:
            break
        for pid in fresh:
            _send(pid, number)
        found |= fresh
    return found


def children(parent: int) -> set[int]:
    """Living processes whose parent is `parent`."""
    return _living_children().get(parent, set())


def descendants(ancestor: int) -> set[int]:
    """Living processes that descend from `ancestor`, itself not among them."""
    families = _living_children()
    found: set[int] = set()
    todo = [ancestor]
    while todo:
        fresh = families.get(todo.pop(), set()) - found
        found |= fresh
        todo += fresh
    return found


def _living_children() -> dict[int, set[int]]:
    families: dict[int, set[int]] = {}
    for pid, process in all_processes().items():
        if not process.dead:
            families.setdefault(process.parent, set()).add(pid)
    return families


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
