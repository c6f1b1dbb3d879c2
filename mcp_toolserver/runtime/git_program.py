"""Which git is run, and how its argument lists begin.

Imported before the broker is forked, so it is light.
"""

from collections.abc import Sequence

from mcp_toolserver.runtime.host_programs import find_program
from mcp_toolserver.runtime.sandbox.charter import Helper


def find_git(path_entries: Sequence[str], roots: Sequence[str] = ()) -> str | None:
    """The absolute path of git: the first in `path_entries` that lies in no folder of `roots`."""
    return find_program(("git",), path_entries, roots)


def start(git: str) -> tuple[str, ...]:
    """How every argument list begins; the broker holds it fixed."""
    return (git, "--no-pager", "--literal-pathspecs", "--no-optional-locks", "--no-replace-objects")


def helper(git: str) -> Helper:
    """What the broker must let through: git reads what a read-only command may."""
    return Helper(argv=start(git), reach="system")
