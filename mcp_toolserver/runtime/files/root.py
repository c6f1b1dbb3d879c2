"""Folders that stay open for the life of the server; every path is opened relative to one."""

import os
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock

from mcp_toolserver.errors import Unavailable
from mcp_toolserver.runtime.files.path_resolver import HOLD, ResolvedPath, is_open_as, relative_to
from mcp_toolserver.runtime.files.volume import comparison_within
from mcp_toolserver.text.file_names import EXACT, NameComparison, folded

_DATA, _PRIVATE, _LINKS = "/System/Volumes/Data", "/private", ("/etc", "/tmp", "/var")  # noqa: S108 - names of macOS

WORKTREES = ".worktrees"
"""The folder in a repository's work tree that holds its worktrees."""


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
    comparison: NameComparison = field(init=False)
    """How its volume compares names, or one mounted below it when it was opened, if that takes more for the
    same."""

    def __post_init__(self) -> None:
        weakref.finalize(self, os.close, self.fd)
        object.__setattr__(self, "comparison", comparison_within(self.fd, self.path))

    def at(self, relative: str) -> str:
        """The absolute path of what lies at `relative`."""
        return self.path if relative == "." else f"{self.path.rstrip('/')}/{relative}"

    def relative(self, path: str) -> str | None:
        """The absolute `path` relative to this folder; None if it does not lie in it.

        Compared as text; where names are not compared exactly, another spelling of the folder counts if it
        leads to it.
        """
        found = [inner for prefix in self.prefixes if (inner := relative_to(prefix, path)) is not None]
        if found or self.comparison is EXACT:
            return min(found, key=len, default=None)
        return next(filter(None, (self._by_other_name(prefix, path) for prefix in self.prefixes)), None)

    def _by_other_name(self, prefix: str, path: str) -> str | None:
        parts = path.rstrip("/").split("/")
        length = len(prefix.split("/"))
        spelt, rest = "/".join(parts[:length]), "/".join(parts[length:])
        if folded(spelt) != folded(prefix) or not is_open_as(spelt, self.fd):
            return None
        return f"{rest}/" if path.endswith("/") and rest else rest or "."


def open_root(given: str, *, is_own: bool = False) -> Root:
    """Open the root that the operator configured; with `is_own`, a folder of the server's own whose files may
    be read, and to which no rule is relative.

    Raises:
        OSError: if it is not a folder, or cannot be opened.
    """
    path = os.path.realpath(given)
    return Root(
        fd=os.open(path, HOLD | os.O_NOFOLLOW),
        path=path,
        prefixes=_prefixes(given, path),
        base="" if is_own else path,
        writable=not is_own,
    )


class TemporaryFolder:
    """A folder that file tools may use in addition to the roots: the temporary folder of a session, or that
    of its plan file. It neither lies in a root nor holds one, and is opened when it is first needed."""

    def __init__(self, path: str, open_folder: Callable[[], int | None]) -> None:
        self.path = path
        self._open = open_folder
        self._lock = Lock()
        self._root: Root | None = None

    def root(self) -> Root | None:
        """The folder under the name that commands have for it; None if there is none."""
        with self._lock:
            if self._root is None:
                try:
                    folder = self._open()
                except Unavailable:
                    return None
                if folder is not None:
                    # No rule is relative to it.
                    self._root = Root(fd=folder, path=self.path, prefixes=(self.path,), base="")
            return self._root


def part_of(root: Root, part: ResolvedPath, given: str) -> Root:
    """The folder `part` of `root`, which a client calls `given`."""
    path = root.at(part.relative)
    prefixes = _prefixes(given, path)
    return Root(fd=part.fd, path=path, prefixes=prefixes, base=root.base, writable=root.writable)


def _prefixes(given: str, path: str) -> tuple[str, ...]:
    """Both spellings, and those of macOS; without the given one where it contains `..`."""
    own = (path,) if ".." in given.split("/") else (path, os.path.abspath(given))
    if sys.platform == "darwin":
        for name in darwin_names(path):
            with suppress(OSError):
                own += (name,) if os.path.samefile(name, path) else ()
    return tuple(dict.fromkeys(own))


def darwin_names(path: str) -> tuple[str, ...]:
    """Other absolute paths that may lead to `path` on macOS.

    /etc, /tmp and /var are links to folders in /private; firmlinks join folders of the volume at
    /System/Volumes/Data to / (listed in /usr/share/firmlinks).
    """
    names = [path.removeprefix(_DATA)] if path.startswith(f"{_DATA}/") else [path]
    if names[0].startswith(tuple(f"{_PRIVATE}{link}/" for link in _LINKS)):
        names.append(names[0].removeprefix(_PRIVATE))
    elif names[0].startswith(tuple(f"{link}/" for link in _LINKS)):
        names.append(_PRIVATE + names[0])
    return (*names, *(_DATA + name for name in names))


def nested(roots: tuple[Root, ...]) -> tuple[Root, Root] | None:
    """An outer and an inner root, if one of `roots` lies in another or is given twice."""
    for index, root in enumerate(roots):
        for other in roots[index + 1 :]:
            if root.relative(other.path):
                return root, other
            if other.relative(root.path):
                return other, root
    return None


class LocatedPath(str):
    """A `CanonicalPath` that carries where it lies, so that one call finds that out once.

    All of that holds for the view of the workspace that made it; another view finds it out again.
    """

    view: object
    root: Root
    relative: str
    """Relative to `root`; `.` for the root itself."""
    spellings: tuple[str, ...]
    """Those that rules match: relative to its configured root, and absolute, which is the last."""
    is_hidden: bool
    comparison: NameComparison
    """How its name is compared with others."""


def in_work_tree(path: str, comparison: NameComparison) -> tuple[str, ...]:
    """The spellings of a path relative to a configured root. A rule on a file of a repository applies to the
    same file of its worktrees too."""
    compared = folded(path, comparison)
    if WORKTREES not in compared:
        return (path,)
    parts, compared_parts = path.split("/"), compared.split("/")
    at = compared_parts.index(WORKTREES) if WORKTREES in compared_parts else len(parts)
    inner = parts[at + 2 :]
    return ("/".join((*parts[:at], *inner)), path) if inner else (path,)
