"""Finds the git executable and builds the common start of its argument lists.

This module is imported before the broker forks, so its imports are few.
"""

from collections.abc import Sequence

from mcp_toolserver.runtime.sandbox.broker.policy import Helper
from mcp_toolserver.runtime.which import find_program

GIT_FOLDER = ".git"


def find_git(path_entries: Sequence[str], roots: Sequence[str] = ()) -> str | None:
    """Return the absolute path of the first git in `path_entries` that is not inside a folder of `roots`."""
    return find_program(("git",), path_entries, roots)


def argv_prefix(git: str) -> tuple[str, ...]:
    """Return the first arguments of every git command; the broker accepts no others."""
    return (git, "--no-pager", "--literal-pathspecs", "--no-optional-locks", "--no-replace-objects")


def helper(git: str) -> Helper:
    """Return the broker rule for git, which may read what a read-only command may read.

    Where the mode permits it, a request can let it write in the `.git` folder of a repository.
    """
    return Helper(argv=argv_prefix(git), reach="system", writes=GIT_FOLDER)
