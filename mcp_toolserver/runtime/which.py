"""Finds programs on this machine without running any.

This module is imported before the broker forks, so its imports are few.
"""

import os
from collections.abc import Sequence

_ENDING = ".exe" if os.name == "nt" else ""

POWERSHELLS = ("pwsh", "powershell")
ENGINES = ("docker", "podman", "container")
"""Container engines; the last is Apple's."""


def find_program(names: Sequence[str], path_entries: Sequence[str], roots: Sequence[str] = ()) -> str | None:
    """Return the absolute path of the first of `names` in `path_entries`.

    Programs inside `roots` are ignored, because a command could have put them there.
    """
    files = (
        os.path.join(entry, name + _ENDING)
        for name in names
        for entry in path_entries
        if os.path.isabs(entry)
    )
    return next((file for file in files if is_executable(file) and not is_inside(file, roots)), None)


def powershell_start(program: str) -> tuple[str, ...]:
    """Return the first arguments for PowerShell; the script follows."""
    return (program, "-NoProfile", "-NonInteractive", "-Command")


def is_executable(file: str) -> bool:
    """Whether `file` is an executable file."""
    return os.path.isfile(file) and os.access(file, os.X_OK)


def is_inside(file: str, roots: Sequence[str]) -> bool:
    """Whether `file` is inside a root by any of its names: a link in a root can be changed to point
    elsewhere."""
    within = {os.path.abspath(file), os.path.realpath(os.path.dirname(file)), os.path.realpath(file)}
    real_roots = {os.path.realpath(root) for root in roots}
    return any(os.path.commonpath((place, root)) == root for place in within for root in real_roots)
