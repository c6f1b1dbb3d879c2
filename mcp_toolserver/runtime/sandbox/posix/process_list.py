"""The processes of this machine, as `ps` lists them.

The keywords pid, ppid, state, rss, time, lstart and command exist in the `ps` of macOS (keyword.c of Apple's
adv_cmds) and of Linux (procps). Both escape control characters in `command`, so each process has one line.
"""

import os
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from mcp_toolserver.runtime.sandbox.broker.resource_usage import Unlisted

PLACES = ("/bin/ps", "/usr/bin/ps")
LIST_SECONDS = 5.0
"""How long `ps` may take."""

_COLUMNS = ("pid", "ppid", "state", "rss", "time", "lstart", "command")
_DIALECTS = (("-E", "-S"), ("e", "S"))
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
        found = _listed(program, _dialect(program))
    except Unlisted:
        raise
    except OSError as error:
        raise Unlisted(f"{program} cannot be run: {error.strerror}") from None
    if os.getpid() not in found:
        raise Unlisted(f"{program} does not list the process that asks")
    return found


@cache
def _dialect(program: str) -> tuple[str, ...]:
    """The flags that `program` understands.

    Raises:
        Unlisted: it understands none, so that it does not list this process.
        OSError: it cannot be run.
    """
    for flags in _DIALECTS:
        if os.getpid() in _listed(program, flags):
            return flags
    raise Unlisted(f"{program} does not list the process that asks")


def _listed(program: str, flags: Sequence[str]) -> dict[int, Process]:
    """What it prints. Raises: OSError: it cannot be run, or has no end."""
    columns = (word for column in _COLUMNS for word in ("-o", f"{column}="))
    with subprocess.Popen(
        (program, "-A", "-w", "-w", *columns, *flags),
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
        started=_epoch(started.decode()),
        text=text,
    )


def _seconds(spent: str) -> float:
    """`1-02:03:04` as Linux prints it, or `123:45.67` as macOS does."""
    days, _, rest = spent.rpartition("-")
    seconds = 0.0
    for part in rest.split(":"):
        seconds = seconds * 60 + float(part)
    return seconds + int(days or 0) * 86_400


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def _epoch(started: str) -> float:
    """Seconds since the epoch of `Nov 23 02:14:57 2026`, which is local time."""
    month, day, clock, year = started.split()
    hours, minutes, seconds = map(int, clock.split(":"))
    return time.mktime((int(year), _MONTHS.index(month) + 1, int(day), hours, minutes, seconds, 0, 0, -1))
