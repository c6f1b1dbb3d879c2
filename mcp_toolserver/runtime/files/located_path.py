"""A canonical path that carries where it lies, so that one call finds that out once."""

from collections.abc import Callable

from mcp_toolserver.runtime.files.path_resolver import relative_to
from mcp_toolserver.runtime.files.root import Root

WORKTREES = ".worktrees"
"""The folder in a repository's work tree that holds its worktrees."""


class LocatedPath(str):
    """A `CanonicalPath` with its root, its path below it and whether it is hidden.

    All of that holds for the view of the workspace that made it; another view finds it out again.
    """

    __slots__ = ("is_hidden", "relative", "root", "spellings", "view")

    view: object
    root: Root
    relative: str
    """Relative to `root`; `.` for the root itself."""
    spellings: tuple[str, ...]
    """Those that rules match: relative to its configured root, and absolute, which is the last."""
    is_hidden: bool

    @classmethod
    def below(
        cls, root: Root, relative: str, *, path: str, view: object, hides: Callable[[tuple[str, ...]], bool]
    ) -> "LocatedPath":
        """The object `relative` in `root`, whose canonical spelling is `path`."""
        located = cls(path)
        absolute = root.at(relative)
        from_base = relative_to(root.base, absolute) if root.base else None
        located.view, located.root, located.relative = view, root, relative
        located.spellings = (absolute,) if from_base is None else (*_in_work_tree(from_base), absolute)
        located.is_hidden = hides(located.spellings)
        return located


def _in_work_tree(path: str) -> tuple[str, ...]:
    """The spellings of a path relative to a configured root. A rule on a file of a repository applies to the
    same file of its worktrees too."""
    if WORKTREES not in path:
        return (path,)
    parts = path.split("/")
    at = parts.index(WORKTREES) if WORKTREES in parts else len(parts)
    inner = parts[at + 2 :]
    return ("/".join((*parts[:at], *inner)), path) if inner else (path,)
