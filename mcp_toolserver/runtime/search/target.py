"""What ripgrep searches: the open folder in which it runs, its standard input, and the files that are wanted.

ripgrep's own globs override ignore files, and its types include hidden files. So the caller's glob and the
operator's rules are matched here; ripgrep only gets simple file name patterns, to skip other files.
"""

import os
import re
import weakref
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import InvalidInput, NotFound
from mcp_toolserver.runtime.anonymous_file import anonymous_file
from mcp_toolserver.runtime.files.path_resolver import parent
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.search.ignore_rules import inherited
from mcp_toolserver.text.search.glob import expand, matcher

Wanted = Callable[[str], bool]

_PLAIN_NAME = re.compile(r"(?:[\w. @+-]|\*(?!\*))+", re.ASCII)
"""Patterns that have the same meaning in ripgrep and here."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchTarget:
    """An open folder to search. Its descriptors are closed with it: a caller may leave while it is opened."""

    path: CanonicalPath
    """The path that results are relative to."""
    folder: int
    file: CanonicalPath | None = None
    """The single file to search, which is then standard input."""
    stdin: int | None = None
    close: Callable[[], object] = field(init=False)

    def __post_init__(self) -> None:
        descriptors = [one for one in (self.folder, self.stdin) if one is not None]
        object.__setattr__(self, "close", weakref.finalize(self, _close, descriptors))

    @property
    def has_rules(self) -> bool:
        """Whether standard input holds ignore rules."""
        return self.file is None and self.stdin is not None

    def rewind(self) -> None:
        if self.stdin is not None:
            os.lseek(self.stdin, 0, os.SEEK_SET)


@asynccontextmanager
async def open_target(
    workspace: Workspace, path: CanonicalPath, *, ignored: bool
) -> AsyncGenerator[SearchTarget]:
    """Open the folder or file at `path`; add ignore rules from above unless `ignored` files are wanted.

    Raises:
        NotFound: if missing.
        Denied: if hidden or unreadable.
        InvalidInput: if neither a file nor a folder.
    """
    target = await workspace.read(path, partial(_open, workspace, path, ignored))
    try:
        yield target
    finally:
        target.close()


def _open(workspace: Workspace, path: CanonicalPath, ignored: bool) -> SearchTarget:
    match workspace.kind(path):
        case "folder":
            rules = b"" if ignored else inherited(workspace, path)
            folder = workspace.hold_dir(path)
            stdin = anonymous_file("ignore rules", rules) if rules else None
            return SearchTarget(path=path, folder=folder, stdin=stdin)
        case "file":
            above, stdin = parent(path), workspace.open_file(path)
            return SearchTarget(path=above, folder=workspace.hold_dir(above), file=path, stdin=stdin)
        case "missing":
            raise NotFound(f"'{path}' does not exist. Search a folder above it.")
        case "other":
            raise InvalidInput(f"'{path}' is neither a file nor a folder. Search a folder.")


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


# --- the files in it --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Include:
    """A compiled glob, relative to the searched folder."""

    matches: Wanted | None = None
    """None for everything."""
    names: tuple[str, ...] | None = None
    """Patterns for the last component of every match; None when there is no such list."""
    names_suffice: bool = False
    """Whether everything with such a name matches."""
    names_hidden: bool = False
    """Whether it names files or folders that start with a dot."""


def include(glob: str | None) -> Include:
    """Compile a glob; with a `!` in front, for everything that it does not match.

    Raises:
        InvalidInput: it leaves the folder, or cannot be compiled.
    """
    if glob is None:
        return Include()
    alternatives = _expanded(glob.removeprefix("!"))
    matches = matcher(glob.removeprefix("!"))
    if glob.startswith("!"):
        return Include(matches=lambda name: not matches(name))
    names = tuple(alternative.rpartition("/")[2] for alternative in alternatives)
    is_plain = all(map(_PLAIN_NAME.fullmatch, names))
    is_any_depth = all(
        alternative in (name, f"**/{name}") for alternative, name in zip(alternatives, names, strict=True)
    )
    if is_plain and is_any_depth and "*" in names:
        return Include()
    return Include(
        matches=matches,
        names=names if is_plain and "*" not in names else None,
        names_suffice=is_plain and is_any_depth,
        names_hidden=any(
            part.startswith(".") and part != "." for glob in alternatives for part in glob.split("/")
        ),
    )


def _expanded(glob: str) -> Sequence[str]:
    try:
        alternatives = expand(glob)
    except ValueError as error:
        raise InvalidInput(f"'{glob[:80]}' cannot be used: {error}.") from None
    if any(alternative.startswith("/") for alternative in alternatives):
        raise InvalidInput(
            f"'{glob[:80]}' is absolute, but is matched inside `path`. Give the folder as `path`."
        )
    return alternatives


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Accepts files that match a glob and that neither a rule nor a leading dot hides."""

    matches: Wanted | None = None
    """None for everything."""
    is_hidden: Wanted | None = None
    """Whether a rule hides a file; None when there are no rules."""
    dots: bool = False
    """Whether dot files are included."""

    def __call__(self, name: str) -> bool:
        if not self.dots and (name.startswith(".") or "/." in name):
            return False
        if self.matches is not None and not self.matches(name):
            return False
        return self.is_hidden is None or not self.is_hidden(name)

    @property
    def is_open(self) -> bool:
        """Whether only a leading dot can exclude a file."""
        return self.matches is None and self.is_hidden is None
