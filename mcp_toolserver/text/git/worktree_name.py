"""Names of worktrees, which become names of folders and parts of branch names."""

import re

MAX_NAME = 64

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def check_worktree_name(name: str) -> str:
    """Return `name` if it can name a folder and a branch.

    Raises:
        ValueError: it cannot.
    """
    if (
        len(name) > MAX_NAME
        or not _NAME.fullmatch(name)
        or ".." in name
        or name.lower().endswith((".", ".lock", ".git"))
    ):
        raise ValueError(
            f"a worktree's name has 1 to {MAX_NAME} letters, digits, '-', '_' and '.', begins with a letter, "
            "digit or '_', and does not contain '..' or end with '.', '.lock' or '.git'"
        )
    return name
