"""Builds the stand-in for Seatbelt: the library, with gcc, once for each version, and `sandbox-exec`."""

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.official import cache_folder

SOURCE = Path(__file__).with_name("stand_in.c")
HERE = Path(__file__).parents[2]
FLAGS = ("-O2", "-Wall", "-Wextra", "-Wno-nonnull-compare", "-shared", "-fPIC")

_SCRIPT = """\
#!{python} -IS
import sys
sys.path.insert(0, {here!r})
from tests.darwin.sandbox_exec import main
main(library={library!r}, tables={tables!r}, mutation={mutation!r})
"""

_PROGRAM = """\
#!{python} -IS
import ctypes, os
os._exit(ctypes.CDLL(None).sandbox_check(os.getpid(), {operation!r}, 0))
"""
_PROGRAMS = {"osascript": b"appleevent-send", "launchctl": b"job-creation"}
"""Programs of macOS, which do nothing but fail where the sandbox denies the operation."""


@dataclass(frozen=True, kw_only=True)
class StandIn:
    """The paths of a stand-in."""

    library: str
    program: str
    """It takes the arguments of `sandbox-exec`."""

    @property
    def has_mutated(self) -> bool:
        """Whether a mutation changed a profile."""
        return Path(self.program).with_name("tables").joinpath("mutated").exists()


def reason_to_skip() -> str | None:
    """Why no stand-in can be built here, or None."""
    if sys.platform != "linux":
        return "the stand-in for Seatbelt is a library for Linux"
    return None if shutil.which("gcc") else "there is no gcc to build the stand-in for Seatbelt with"


def build(folder: Path, mutation: str = "") -> StandIn:
    """Make `sandbox-exec` in `folder`, with a library that is built when there is none of this version.

    The folder has to be readable for whoever runs sandboxed programs. With one of `mutations.MUTATIONS`, each
    profile is read with that mistake in it, and `has_mutated` tells whether any had a place for it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tables = folder / "tables"
    tables.mkdir(exist_ok=True)
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    library = _library()
    program = folder / "sandbox-exec"
    python = os.path.realpath(sys.executable)
    program.write_text(
        _SCRIPT.format(
            python=python, here=str(HERE), library=str(library), tables=str(tables), mutation=mutation
        ),
        encoding="utf-8",
    )
    program.chmod(0o755)
    for name, operation in _PROGRAMS.items():
        (programs / name).write_text(_PROGRAM.format(python=python, operation=operation), encoding="utf-8")
        (programs / name).chmod(0o755)
    return StandIn(library=str(library), program=str(program))


def _library() -> Path:
    version = hashlib.sha256(SOURCE.read_bytes() + " ".join(FLAGS).encode()).hexdigest()[:16]
    cache = cache_folder() / "darwin"
    found = cache / f"stand_in-{version}.so"
    if not found.exists():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = cache / f"{found.name}.{os.getpid()}"
        subprocess.run(["gcc", *FLAGS, "-o", unfinished, SOURCE, "-ldl"], check=True, timeout=120)
        unfinished.rename(found)
    return found
