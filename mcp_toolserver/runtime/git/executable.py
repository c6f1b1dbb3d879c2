"""The common start of the argument lists of git.

This module is imported before the broker forks, so its imports are few.
"""

from mcp_toolserver.runtime.sandbox.broker.policy import Helper

GIT_FOLDER = ".git"


def argv_prefix(git: str) -> tuple[str, ...]:
    """Return the first arguments of every git command; the broker accepts no others."""
    return (git, "--no-pager", "--literal-pathspecs", "--no-optional-locks", "--no-replace-objects")


def helper(git: str) -> Helper:
    """Return the broker rule for git, which may read what a read-only command may read.

    Where the mode permits it, a request can let it write in the `.git` folder of a repository.
    """
    return Helper(argv=argv_prefix(git), reach="system", writes=GIT_FOLDER)
