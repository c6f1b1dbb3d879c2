"""Landlock inside bubblewrap: keeps a command from writing into named pipes outside its writable folders.

A read-only mount keeps a file as it is, but lets a named pipe be opened for writing, and what reads it
outside the sandbox may act on what comes. Landlock's right to write covers pipes. It forbids every later
mount, so it has to come after bubblewrap: a program that bubblewrap starts sets it and becomes the command.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from mcp_toolserver.runtime.sandbox.layers import inner_program
from mcp_toolserver.runtime.sandbox.mounts.mounts import Mounts

__all__ = ["argv_prefix", "interpreter_folder"]

_WRITABLE = ("writable", "scratch", "session", "devices")

_SOURCE = Path(inner_program.__file__).read_text(encoding="utf-8")
"""Passed as an argument: the package may lie where a command sees nothing."""


def interpreter_folder() -> str:
    """The folder of the Python that runs the program, links resolved; a command must see it."""
    return os.path.realpath(sys.base_prefix)


def argv_prefix(made: Mounts, *, scopes_sockets: bool) -> tuple[str, ...]:
    """What goes before the arguments of a command whose mounts are `made`.

    `scopes_sockets` keeps it from the abstract sockets of other programs too, where the kernel can (Landlock
    version 6): a command that shares the machine's network reaches them otherwise.
    """
    places = [path for path, mount in made.items() if mount in _WRITABLE]
    outer = _without_inner(sorted(places, key=len))
    interpreter = os.path.realpath(sys.executable)
    flag = "scoped" if scopes_sockets else "open"
    return (interpreter, "-I", "-S", "-c", _SOURCE, flag, *outer, "--")


def _without_inner(places: Sequence[str]) -> list[str]:
    outer: list[str] = []
    for place in places:
        if not any(place.startswith(f"{above.rstrip('/')}/") for above in outer):
            outer.append(place)
    return outer
