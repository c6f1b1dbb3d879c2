"""Measures what a process and its descendants use, in one pass over /proc, and kills them.

Most kernels list the children of each process; on others it reads the parent of every process.

Where the kernel has no signal scopes, killing stops every descendant it sees until it sees no new one, then
kills them all: a stopped process cannot fork. A chain of processes that each fork and exit at once can outrun
it.
"""

import contextlib
import errno
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_ROOM = 1 << 16

ROUNDS = 100
"""Looks for new descendants before they are killed."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """The usage of all descendants together."""

    processes: int
    """A dead process that its parent has not waited for is one: it keeps its number."""
    threads: int
    memory: int
    """Bytes."""
    cpu_seconds: float
    """Of the living and of the dead, as far as a parent waited for them."""


class Unlisted(OSError):
    """The processes cannot be listed."""


class Process(NamedTuple):
    """A process when it was looked at."""

    parent: int
    dead: bool
    ticks: int
    """Of its own."""
    waited: int
    """Ticks of the children that it waited for, and of theirs."""
    threads: int
    pages: int
    """In memory, shared or not."""


def measure(ancestor: int, *, exact_above: int, proc: str = "/proc") -> Usage:
    """Measure the descendants of `ancestor`, without itself.

    Memory is first counted the cheap way, where each process counts all that it shares. Only when that gives
    more than `exact_above` bytes is it counted exactly.
    """
    supervisor = _read(ancestor, proc)
    if _knows_children(proc):
        numbers = _walk(ancestor, lambda pid: _children(pid, proc))
        tree = {pid: process for pid in numbers if (process := _read(pid, proc)) is not None}
    else:
        tree = _below(ancestor, _all_processes(proc))
    # What the ancestor itself is about to wait for holds no number for long.
    processes = sum(not process.dead or process.parent != ancestor for process in tree.values())
    ticks = sum(process.ticks + process.waited for process in tree.values())
    memory = _PAGE * sum(process.pages for process in tree.values())
    if memory > exact_above:
        memory = sum(_exact(pid, process.pages, proc) for pid, process in tree.items())
    return Usage(
        processes=processes,
        threads=sum(process.threads for process in tree.values() if not process.dead),
        memory=memory,
        cpu_seconds=(ticks + (supervisor.waited if supervisor else 0)) / _TICKS,
    )


def descendants_by_id(ancestor: int) -> Iterable[int]:
    """The ids of all processes that descend from `ancestor`, itself not included, also of those that end
    meanwhile.

    Raises:
        OSError: this kernel does not list the children of a process. In a list of all processes, one that
            forks and ends all the time can be missed.
    """
    if not _knows_children("/proc"):
        raise OSError(errno.ENOSYS, "the children of a process are not listed")
    return _walk(ancestor, lambda pid: _children(pid, "/proc"))


# --- who belongs to it -----------------------------------------------------------------------------------


@cache
def _knows_children(proc: str) -> bool:
    return os.path.exists(f"{proc}/thread-self/children")


def _walk(ancestor: int, children_of: Callable[[int], Iterable[int]]) -> set[int]:
    """The ids of what descends from `ancestor`."""
    found: set[int] = set()
    todo = [ancestor]
    while todo:
        fresh = set(children_of(todo.pop())) - found
        found |= fresh
        todo += fresh
    return found


def _below(ancestor: int, everyone: Mapping[int, Process]) -> dict[int, Process]:
    """The descendants of `ancestor` among `everyone`, by their parents."""
    by_parent: dict[int, list[int]] = {}
    for pid, process in everyone.items():
        by_parent.setdefault(process.parent, []).append(pid)
    return {pid: everyone[pid] for pid in _walk(ancestor, lambda parent: by_parent.get(parent, ()))}


def _children(pid: int, proc: str) -> Iterable[int]:
    """Those of all its threads; a thread may end meanwhile."""
    threads: list[str] = []
    with contextlib.suppress(OSError):
        threads = os.listdir(f"{proc}/{pid}/task")
    for thread in threads:
        with contextlib.suppress(OSError):
            yield from map(int, _content(f"{proc}/{pid}/task/{thread}/children").split())


def _all_processes(proc: str = "/proc") -> dict[int, Process]:
    numbers = (int(name) for name in os.listdir(proc) if name.isdecimal())
    return {pid: process for pid in numbers if (process := _read(pid, proc)) is not None}


# --- one process -----------------------------------------------------------------------------------------


def _read(pid: int, proc: str) -> Process | None:
    """None when it is gone."""
    try:
        text = _content(f"{proc}/{pid}/stat")
    except OSError:
        return None
    # The name of the program comes before and may hold anything, `)` too.
    state, parent, *rest = text[text.rfind(b")") + 2 :].split()
    return Process(
        parent=int(parent),
        dead=state in b"ZX",
        ticks=int(rest[9]) + int(rest[10]),
        waited=int(rest[11]) + int(rest[12]),
        threads=int(rest[15]),
        pages=int(rest[19]),
    )


def _exact(pid: int, pages: int, proc: str) -> int:
    """Bytes that would be free without it: its part of what it shares, and no pages of files.

    A process that may not be asked counts with all that it has in memory.
    """
    try:
        lines = _content(f"{proc}/{pid}/smaps_rollup").splitlines()[1:]
    except PermissionError:
        return pages * _PAGE
    except OSError:
        # It has ended meanwhile.
        return 0
    parts = {
        name: int(value.split()[0]) * 1024 for name, _, value in (line.partition(b":") for line in lines)
    }
    # Linux reports the parts separately since 5.5.
    return parts.get(b"Pss_Anon", parts.get(b"Pss", 0)) + parts.get(b"Pss_Shmem", 0)


def _content(path: str) -> bytes:
    """Of a small file; the plain calls, because this is done hundreds of times a second."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, _ROOM)
    finally:
        os.close(file)


# --- killing ---------------------------------------------------------------------------------------------


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
    return {pid for pid, one in _all_processes().items() if one.parent == parent and not one.dead}


def descendants(ancestor: int) -> set[int]:
    """Living processes that descend from `ancestor`, itself not among them."""
    # What the kernel lists of a process that forks is not complete.
    return {pid for pid, process in _below(ancestor, _all_processes()).items() if not process.dead}


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
