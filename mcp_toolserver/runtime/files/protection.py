"""Decides which paths file tools leave alone in workspace-write, just as commands do."""

import os
from collections.abc import Callable, Container, Sequence

from mcp_toolserver.capabilities.permissions import Permission
from mcp_toolserver.runtime.files.path_resolver import relative_to
from mcp_toolserver.runtime.sandbox.protected.names import GIT, is_protected, protected_name
from mcp_toolserver.text.file_names import folded

_PROTECTED = "is protected: programs act upon it unasked, so no tool changes it in workspace-write. "


def protection(
    roots: Sequence[str], *, mode: Permission, writable_names: Container[str]
) -> Callable[[str], str | None]:
    """A function that says why an absolute path must not be written; None where it may."""
    real_roots = tuple(map(os.path.realpath, roots))

    def protects(absolute: str) -> str | None:
        if mode is not Permission.WORKSPACE_WRITE:
            return None
        inner = next((found for root in real_roots if (found := _relative(root, absolute)) is not None), "")
        if not is_protected(inner, git_writable=False, writable_names=writable_names):
            return None
        git = not is_protected(inner, git_writable=True, writable_names=writable_names)
        remedy = "Use git in bash." if git else "Tell the user instead."
        return _PROTECTED + remedy

    return protects


def steers_git(path: str) -> bool:
    """Whether the absolute `path` is, or lies in, what git looks for in a repository, next to a file `HEAD`.

    What else is there does not matter: it may be completed later. In `.git`, names alone decide.
    """
    names = path.split("/")
    for index, name in enumerate(names):
        if protected_name(name) == GIT:
            return False
        is_part = name.lower() in ("head", "commondir", "objects", "refs")
        is_part = is_part or is_protected("/".join((GIT, *names[index:])), git_writable=True)
        if is_part and os.path.lexists("/".join((*names[:index], "HEAD"))):
            return True
    return False


def _relative(root: str, absolute: str) -> str | None:
    """`absolute` relative to `root`, which may be spelt in another way than the workspace spells it."""
    found = relative_to(root, absolute)
    return relative_to(folded(root), folded(absolute)) if found is None else found
