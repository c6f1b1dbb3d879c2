"""Programs of this machine, found without running any.

Imported before the broker is forked, so it is light.
"""

import os
from collections.abc import Sequence

_ENDING = ".exe" if os.name == "nt" else ""

POWERSHELLS = ("pwsh", "powershell")
ENGINES = ("docker", "podman", "container")
"""What starts containers; the last is Apple's."""

KERNEL = ("ipykernel", "jupyter_client")
"""The packages that a Jupyter kernel takes."""


def find_program(names: Sequence[str], path_entries: Sequence[str], roots: Sequence[str] = ()) -> str | None:
    """The absolute path of the first of `names` in `path_entries`.

    Nothing in a folder of `roots` counts: a command might have put it there.
    """
    files = (
        os.path.join(entry, name + _ENDING)
        for name in names
        for entry in path_entries
        if os.path.isabs(entry)
    )
    return next((file for file in files if is_program(file) and not lies_in(file, roots)), None)


def powershell_start(program: str) -> tuple[str, ...]:
    """How every argument list for PowerShell begins; the script follows."""
    return (program, "-NoProfile", "-NonInteractive", "-Command")


def is_program(file: str) -> bool:
    """Whether there is a file that can be run."""
    return os.path.isfile(file) and os.access(file, os.X_OK)


def lies_in(file: str, roots: Sequence[str]) -> bool:
    """Whether it does by any of its names: a link in a root that leads out of it can be led elsewhere."""
    within = {os.path.abspath(file), os.path.realpath(os.path.dirname(file)), os.path.realpath(file)}
    real_roots = {os.path.realpath(root) for root in roots}
    return any(os.path.commonpath((place, root)) == root for place in within for root in real_roots)
