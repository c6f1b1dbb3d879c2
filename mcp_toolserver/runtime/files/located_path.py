"""A canonical path that carries where it lies, so that one call finds that out once."""

from collections.abc import Callable

from mcp_toolserver.runtime.files.path_resolver import relative_to
from mcp_toolserver.runtime.files.root import Root
from mcp_toolserver.text.file_names import EXACT, NameComparison, folded, volume_path, widest

WORKTREES = ".worktrees"
"""The folder in a repository's work tree that holds its worktrees."""


class LocatedPath(str):
    """A `CanonicalPath` with its root, its path below it and whether it is hidden.

    All of that holds for the view of the workspace that made it; another view finds it out again.
    """

    __slots__ = ("comparison", "is_hidden", "relative", "root", "spellings", "view")

    view: object
    root: Root
    relative: str
    """Relative to `root`; `.` for the root itself."""
    spellings: tuple[str, ...]
    """Those that rules match: relative to its configured root, and absolute, which is the last."""
    is_hidden: bool
    comparison: NameComparison
    """How its name is compared with others."""

    @classmethod
    def below(  # noqa: PLR0913 - all of it is what makes the path
        cls,
        root: Root,
        relative: str,
        *,
        path: str,
        view: object,
        hides: Callable[[tuple[str, ...]], bool],
        comparison: NameComparison = EXACT,
    ) -> "LocatedPath":
        """The object `relative` in `root`, whose canonical spelling is `path`; `comparison` is that of its
        folder, where it is known."""
        located = cls(path)
        absolute = root.at(relative)
        from_base = relative_to(root.base, absolute) if root.base else None
        located.view, located.root, located.relative = view, root, relative
        if comparison is not root.comparison:
            comparison = widest(comparison, root.comparison)
        located.comparison = comparison
        inside = () if from_base is None else _in_work_tree(from_base, comparison)
        located.spellings = (*inside, absolute)
        if comparison is not EXACT:
            located.spellings = tuple(volume_path(one, comparison) for one in located.spellings)
        located.is_hidden = hides(located.spellings)
        return located


def _in_work_tree(path: str, comparison: NameComparison) -> tuple[str, ...]:
    """The spellings of a path relative to a configured root. A rule on a file of a repository applies to the
    same file of its worktrees too."""
    compared = path if comparison is EXACT else folded(path, comparison)
    if WORKTREES not in compared:
        return (path,)
    parts, compared_parts = path.split("/"), compared.split("/")
    at = compared_parts.index(WORKTREES) if WORKTREES in compared_parts else len(parts)
    inner = parts[at + 2 :]
    return ("/".join((*parts[:at], *inner)), path) if inner else (path,)
