"""Folders held open for the life of the server, which every path is opened beneath."""

import os
import weakref
from dataclasses import dataclass

from mcp_toolserver.runtime.beneath import HOLD, Reached, below


@dataclass(frozen=True, kw_only=True, eq=False)
class Root:
    """A folder that paths may lie in. What its name leads to later has no effect."""

    fd: int
    """Closed with the object."""
    path: str
    """Absolute, links resolved, at the time it was opened."""
    prefixes: tuple[str, ...]
    """Absolute spellings of it that a caller may use."""
    base: str
    """The configured root that it lies in, to which rules are relative; empty for none."""
    writable: bool = True

    def __post_init__(self) -> None:
        weakref.finalize(self, os.close, self.fd)

    def at(self, inner: str) -> str:
        """The absolute path of what lies at `inner`."""
        return self.path if inner == "." else f"{self.path.rstrip('/')}/{inner}"


def configured(given: str) -> Root:
    """The root that an operator names.

    Raises:
        OSError: it is no folder, or cannot be opened.
    """
    return _held(given, base=None, writable=True)


def reading(given: str) -> Root:
    """A folder of the server's own whose files may be read.

    Raises:
        OSError: as for `configured`.
    """
    return _held(given, base="", writable=False)


def narrowed(root: Root, part: Reached, given: str) -> Root:
    """The folder `part` of `root`, which a client calls `given`."""
    path = root.at(part.inner)
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
    """Both spellings; not the given one when it holds `..`, which letters alone cannot resolve."""
    if ".." in given.split("/"):
        return (path,)
    return tuple({path: None, os.path.abspath(given): None})


def nested(roots: tuple[Root, ...]) -> tuple[Root, Root] | None:
    """An outer and an inner root, if one of `roots` lies in another or is given twice."""
    for index, root in enumerate(roots):
        for other in roots[index + 1 :]:
            if below(root.path, other.path):
                return root, other
            if below(other.path, root.path):
                return other, root
    return None
