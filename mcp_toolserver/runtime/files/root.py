"""Folders that stay open for the life of the server; every path is opened relative to one."""

import os
import weakref
from dataclasses import dataclass

from mcp_toolserver.runtime.files.path_resolver import HOLD, ResolvedPath, relative_to


@dataclass(frozen=True, kw_only=True, eq=False)
class Root:
    """An open folder that paths may lie in. Renaming or replacing it later has no effect."""

    fd: int
    """Closed with the object."""
    path: str
    """Absolute, links resolved, at the time it was opened."""
    prefixes: tuple[str, ...]
    """The absolute spellings of it that a caller may use."""
    base: str
    """The configured root that it lies in; rules are relative to it. Empty for none."""
    writable: bool = True

    def __post_init__(self) -> None:
        weakref.finalize(self, os.close, self.fd)

    def at(self, relative: str) -> str:
        """The absolute path of what lies at `inner`."""
        return self.path if relative == "." else f"{self.path.rstrip('/')}/{relative}"


def open_root(given: str) -> Root:
    """Open the root that the operator configured.

    Raises:
        OSError: if it is not a folder, or cannot be opened.
    """
    return _held(given, base=None, writable=True)


def reading(given: str) -> Root:
    """Open a folder of the server's own whose files may be read.

    Raises:
        OSError: as for `configured`.
    """
    return _held(given, base="", writable=False)


def opened_root(fd: int, path: str) -> Root:
    """Take the folder open as `fd`, which callers know by the absolute `path`; no rule is relative to it."""
    return Root(fd=fd, path=path, prefixes=(path,), base="")


def part_of(root: Root, part: ResolvedPath, given: str) -> Root:
    """The folder `part` of `root`, which a client calls `given`."""
    path = root.at(part.relative)
    return Root(
        fd=part.fd,
        path=path,
        prefixes=_prefixes(given, path),
        base=root.base,
        writable=root.writable,
    )


def _held(given: str, *, base: str | None, writable: bool) -> Root:
    path = os.path.realpath(given)
    return Root(
        fd=os.open(path, HOLD | os.O_NOFOLLOW),
        path=path,
        prefixes=_prefixes(given, path),
        base=path if base is None else base,
        writable=writable,
    )


def _prefixes(given: str, path: str) -> tuple[str, ...]:
    """Both spellings; only the resolved one where the given one contains `..`."""
    if ".." in given.split("/"):
        return (path,)
    return tuple({path: None, os.path.abspath(given): None})


def nested(roots: tuple[Root, ...]) -> tuple[Root, Root] | None:
    """An outer and an inner root, if one of `roots` lies in another or is given twice."""
    for index, root in enumerate(roots):
        for other in roots[index + 1 :]:
            if relative_to(root.path, other.path):
                return root, other
            if relative_to(other.path, root.path):
                return other, root
    return None
