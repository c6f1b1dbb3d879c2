"""Limits of one command and all that it starts. They are fixed at start; no request changes them."""

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

_CONTAINER_MEMORY = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""What a container may use, by the two generations of control groups. It may be less than the machine has."""


def _memory_here() -> int:
    """Bytes of memory that this process and its neighbours may use."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in _CONTAINER_MEMORY:
        # The newer kind may hold the word "max".
        with contextlib.suppress(OSError, ValueError):
            found = min(found, int(file.read_text(encoding="ascii")))
    return found


def session_size() -> int:
    """Bytes in the temporary folder of a session: 1 GiB, or an eighth of the memory here if that is less."""
    return min(1 << 30, _memory_here() // 8)


@dataclass(frozen=True, kw_only=True)
class CommandBounds:
    """What one command, foreground or background, or one helper program may use.

    Over one of the first four it is killed with all that it started; the others hold for each process, which
    is refused more.
    """

    processes: int = 512
    """Of its own at once, the sandbox around it included."""
    threads: int = 4096
    """In all of its processes at once: threads take process numbers too."""
    memory: int = field(default_factory=lambda: _memory_here() // 2)
    """Bytes in all; by default half of what there is. Pages shared among its processes count once, and those
    of mapped files not at all: the kernel can take them back."""
    cpu_seconds: int = field(default_factory=lambda: 3600 * (os.cpu_count() or 1))
    """In all; by default an hour of every processor. Children of a process that ignores
    SIGCHLD are counted only while they live."""
    file_size: int = 8 << 30
    """Bytes of one file. Writing beyond it ends a process by SIGXFSZ, or fails where it ignores that."""
    open_files: int = 65_536
    """Of one process. It starts with at most `STARTING_FILES` and may ask for more."""


STARTING_FILES = 1024
"""Open files that a process may have without asking: programs exist that fail above it, or close each one."""


def describe(bounds: CommandBounds) -> tuple[str, ...]:
    return (
        f"{bounds.processes:,} processes and {bounds.threads:,} threads at once",
        f"{readable(bounds.memory)} of memory in all",
        f"{bounds.cpu_seconds:,} s of processor time in all",
        f"{readable(bounds.file_size)} in one file",
        f"{bounds.open_files:,} open files in one process",
        "no core dumps",
    )


def readable(size: int) -> str:
    """A number of bytes, such as `8.0 GiB`."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"
