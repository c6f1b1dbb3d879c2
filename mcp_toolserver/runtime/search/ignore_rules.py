"""Ignore rules, as git and ripgrep read them: for a listing, and as input for ripgrep.

ripgrep reads the ignore files of the searched folder and of the folders in it. The .gitignore files between
the root and that folder count too, but ripgrep would look for them by path name, and above the root. So the
server reads them through the workspace and rewrites their rules for the searched folder.

The rules and the names that they match both come from the workspace, so matching takes linear time: a rule
moves from folder to folder as a set of positions, and `wcmatch` matches only single path components, which it
does without backtracking.
"""

import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import ToolError
from mcp_toolserver.runtime.files.path_resolver import inside
from mcp_toolserver.runtime.files.workspace import Workspace

_MAX_BYTES = 1 << 20
_FILES = (".git/info/exclude", ".gitignore", ".ignore", ".rgignore")
"""The weakest first."""

NEVER_WANTED = (".git", ".DS_Store")
"""Left out on every system where ignore rules count: the folder of git, and the file in which the Finder of
macOS keeps how it shows a folder."""

_ANY_DEPTH = "**"
_MAGIC = re.compile(r"[*?\[\\]")
_TRAILING_SPACE = re.compile(r"(?<!\\)\s+\Z")


@dataclass(frozen=True, kw_only=True)
class IgnoreRule:
    """One line of an ignore file, as it applies in one folder."""

    parts: tuple[str, ...]
    """A pattern for each path component; `**` for any number of components."""
    negated: bool
    folders_only: bool
    positions: frozenset[int] = frozenset({0})
    """The indices in `parts` from which the rest can match in this folder."""

    @property
    def suffixes(self) -> Iterator[str]:
        """The rule as lines for this folder."""
        for position in sorted(self.positions):
            if position < len(self.parts):
                rest = "/".join(self.parts[position:])
                yield f"{'!' * self.negated}/{rest}{'/' * self.folders_only}"

    def enter(self, name: str) -> "IgnoreRule":
        """The rule as it applies in the folder `name`."""
        return replace(self, positions=self._after(name))

    def matches(self, name: str, *, is_folder: bool) -> bool:
        """Whether the rule is about `name` in this folder."""
        if self.folders_only and not is_folder:
            return False
        last = len(self.parts) - 1
        return (self.parts[last] == _ANY_DEPTH and last in self.positions) or last + 1 in self._after(name)

    def _after(self, name: str) -> frozenset[int]:
        """The positions after one more component; several, because `**` takes any number."""
        stay = {at for at in self.positions if self._part(at) == _ANY_DEPTH}
        ready = self.positions | {at + 1 for at in stay}
        return frozenset(stay | {at + 1 for at in ready if _component_matches(self._part(at), name)})

    def _part(self, at: int) -> str | None:
        return self.parts[at] if at < len(self.parts) else None


@dataclass(frozen=True, kw_only=True)
class IgnoreRules:
    """All ignore rules that apply in one folder."""

    groups: tuple[tuple[IgnoreRule, ...], ...]
    """The weakest first: those from above the listed folder, then those of each name in `_FILES`."""

    def ignores(self, name: str, *, is_folder: bool) -> bool:
        """Whether `name` in this folder is ignored. The strongest rule about it decides."""
        rules = (rule for group in reversed(self.groups) for rule in reversed(group))
        decisive = next((rule for rule in rules if rule.matches(name, is_folder=is_folder)), None)
        return decisive is not None and not decisive.negated

    def enter(self, name: str) -> "IgnoreRules":
        """The rules as they apply in the folder `name`, without the ignore files in it."""
        moved = ([rule.enter(name) for rule in group] for group in self.groups)
        return IgnoreRules(groups=tuple(tuple(rule for rule in group if rule.positions) for group in moved))

    def read(self, workspace: Workspace, folder: CanonicalPath, names: frozenset[str]) -> "IgnoreRules":
        """These rules and those of the ignore files in `folder`, which holds `names`."""
        above, *groups = self.groups
        own = (
            _parsed(_read(workspace, inside(folder, file))) if file.partition("/")[0] in names else ()
            for file in _FILES
        )
        return IgnoreRules(
            groups=(above, *((*group, *rules) for group, rules in zip(groups, own, strict=True)))
        )


def rules_above(workspace: Workspace, folder: CanonicalPath) -> IgnoreRules:
    """The rules that apply in `folder` because of files above it."""
    lines = inherited(workspace, folder).decode("utf-8", "surrogateescape")
    return IgnoreRules(groups=(tuple(_parsed(lines)), *(() for _ in _FILES)))


def inherited(workspace: Workspace, folder: CanonicalPath) -> bytes:
    """The lines that apply in `folder` because of files above it, the weakest first."""
    ancestors = tuple(_ancestors(workspace, folder))[::-1]
    lines = (
        line
        for file in _FILES
        for above, names in ancestors
        for text in _read(workspace, inside(above, file)).splitlines()
        for line in rewritten(text, names)
    )
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


def rewritten(line: str, names: Sequence[str]) -> Iterator[str]:
    """The lines that mean the same as `line` in the folder that `names` lead to."""
    rule = _parse(line)
    if rule is None:
        return
    if "/" not in line.rstrip().removesuffix("/"):
        yield line
        return
    for name in names:
        rule = rule.enter(name)
    yield from rule.suffixes


def _parsed(text: str) -> Iterable[IgnoreRule]:
    return (rule for line in text.splitlines() if (rule := _parse(line)) is not None)


def _parse(line: str) -> IgnoreRule | None:
    """The rule in a line, or None for a comment or a blank line."""
    if not line.strip() or line.startswith("#"):
        return None
    negated = line.startswith("!")
    pattern = _TRAILING_SPACE.sub("", line[negated:])
    path = pattern.removesuffix("/")
    parts = path.removeprefix("/").split("/") if "/" in path else [_ANY_DEPTH, path]
    # Two `**` in a row mean the same as one.
    kept = [
        part for at, part in enumerate(parts) if not (part == _ANY_DEPTH and parts[at - 1 : at] == [part])
    ]
    return IgnoreRule(parts=tuple(kept), negated=negated, folders_only=path != pattern)


def _component_matches(pattern: str | None, name: str) -> bool:
    if pattern is None or pattern == _ANY_DEPTH:
        return False
    return _compile(pattern)(name) is not None if _MAGIC.search(pattern) else pattern == name


@lru_cache(maxsize=1_000)
def _compile(pattern: str) -> Callable[[str], object]:
    """A matcher for one component. Braces are ordinary text in ignore files."""
    # Imported here because few calls need it, and a server's start should not wait for it.
    from wcmatch import fnmatch

    flags = fnmatch.DOTMATCH | fnmatch.FORCEUNIX | fnmatch.CASE
    (regex, *_), _ = fnmatch.translate(pattern, flags=flags)
    with warnings.catch_warnings():
        # Python warns about sets such as `[[a]`, which are valid here.
        warnings.simplefilter("ignore", FutureWarning)
        try:
            return re.compile(regex).match
        except re.error:
            return lambda _: None


def _ancestors(workspace: Workspace, folder: CanonicalPath) -> Iterator[tuple[CanonicalPath, Sequence[str]]]:
    """Each folder above up to the root, the nearest first, with the names that lead down from it."""
    parts = [] if folder == "." else folder.strip("/").split("/")
    top = "/" if folder.startswith("/") else ""
    with suppress(ToolError):  # outside the root
        for depth in range(len(parts) - 1, -1, -1):
            above = CanonicalPath(top + "/".join(parts[:depth]) or ".")
            if workspace.kind(above) != "folder":
                return
            yield above, parts[depth:]


def _read(workspace: Workspace, path: CanonicalPath) -> str:
    """The text of an ignore file; empty where it cannot be read."""
    try:
        fd = workspace.open_file(path)
    except ToolError:
        return ""
    with os.fdopen(fd, "rb") as file:
        return file.read(_MAX_BYTES).decode("utf-8", "surrogateescape")
