"""Which git is run, and how its argument lists begin.

Imported before the broker is forked, so it is light.
"""

import os
from collections.abc import Sequence

from mcp_toolserver.runtime.sandbox.charter import Helper

_NAME = "git.exe" if os.name == "nt" else "git"


def find_git(path_entries: Sequence[str], roots: Sequence[str] = ()) -> str | None:
    """The absolute path of git: the first in `path_entries` that lies in no folder of `roots`."""
    files = (os.path.join(entry, _NAME) for entry in path_entries if os.path.isabs(entry))
    return next((file for file in files if _runs(file) and not _lies_in(file, roots)), None)


def start(git: str) -> tuple[str, ...]:
    """How every argument list begins; the broker holds it fixed."""
    return (git, "--no-pager", "--literal-pathspecs", "--no-optional-locks", "--no-replace-objects")


def helper(git: str) -> Helper:
    """What the broker must let through: git reads what a read-only command may."""
    return Helper(argv=start(git), reach="system")


def _runs(file: str) -> bool:
    return os.path.isfile(file) and os.access(file, os.X_OK)


def _lies_in(file: str, roots: Sequence[str]) -> bool:
    real = os.path.realpath(file)
    return any(os.path.commonpath((real, root)) == root for root in map(os.path.realpath, roots))
