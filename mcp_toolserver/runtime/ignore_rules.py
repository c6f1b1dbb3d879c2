"""Ignore rules of the folders above a searched one, as if they stood in that one.

A search reads the ignore files from its folder downwards. What .gitignore says between the root and there
counts as well, but a search program that looked for it would climb by name, and above the root. So the rules
are read beneath the root here, and handed over rewritten.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import ToolError
from mcp_toolserver.runtime.search_names import inside
from mcp_toolserver.text.glob import matcher

_MAX_BYTES = 1 << 20
_NAMES = (".git/info/exclude", ".gitignore", ".ignore", ".rgignore")
"""The weakest first."""
_MAGIC = re.compile(r"[*?\[\\]")


class Readable(Protocol):
    """What is asked of the workspace."""

    def kind(self, path: CanonicalPath) -> str: ...
    def regular(self, path: CanonicalPath) -> int: ...


def inherited(workspace: Readable, folder: CanonicalPath) -> bytes:
    """The rules that apply in `folder` because of files above it, the weakest first."""
    ancestors = tuple(_ancestors(workspace, folder))[::-1]
    rules = (
        rule
        for name in _NAMES
        for above, below in ancestors
        for rule in _rules(workspace, inside(above, name), below)
    )
    return "".join(f"{rule}\n" for rule in rules).encode("utf-8", "surrogateescape")


def _ancestors(workspace: Readable, folder: CanonicalPath) -> Iterator[tuple[CanonicalPath, Sequence[str]]]:
    """Each folder above up to the root, the nearest first, with the names that lead down from it."""
    parts = [] if folder == "." else folder.strip("/").split("/")
    absolute = folder.startswith("/")
    for depth in range(len(parts) - 1, -1, -1):
        path = "/".join(parts[:depth])
        above = CanonicalPath(f"/{path}" if absolute else path or ".")
        if not _is_within(workspace, above):
            return
        yield above, parts[depth:]


def _is_within(workspace: Readable, folder: CanonicalPath) -> bool:
    try:
        return workspace.kind(folder) == "folder"
    except ToolError:
        return False


def _rules(workspace: Readable, file: CanonicalPath, below: Sequence[str]) -> Iterator[str]:
    for line in _read(workspace, file).splitlines():
        yield from seen_from(line, below)


def _read(workspace: Readable, path: CanonicalPath) -> str:
    try:
        fd = workspace.regular(path)
    except ToolError:
        return ""
    with os.fdopen(fd, "rb") as file:
        return file.read(_MAX_BYTES).decode("utf-8", "surrogateescape")


def seen_from(line: str, below: Sequence[str]) -> Iterator[str]:
    """What a line of an ignore file means in the folder that the names `below` lead to."""
    if not line.strip() or line.startswith("#"):
        return
    negation, rule = ("!", line[1:]) if line.startswith("!") else ("", line)
    if "/" not in rule.rstrip().removesuffix("/"):
        yield line
        return
    parts = rule.removeprefix("/").split("/")
    for position in _positions(parts, below):
        rest = "/".join(parts[position:])
        # Nothing left: the rule is about a folder that somebody asked to search all the same.
        if rest.strip():
            yield f"{negation}/{rest}"


def _positions(parts: Sequence[str], below: Sequence[str]) -> list[int]:
    """Up to where in `parts` the names may have been consumed; several, because `**` takes any number."""
    positions = {0}
    for name in below:
        spanned = {at + 1 for at in positions if _part(parts, at) == "**"} | positions
        positions = {at for at in spanned if _part(parts, at) == "**"} | {
            at + 1 for at in spanned if at < len(parts) and parts[at] != "**" and _means(parts[at], name)
        }
    return sorted(positions)


def _part(parts: Sequence[str], at: int) -> str | None:
    return parts[at] if at < len(parts) else None


def _means(part: str, name: str) -> bool:
    if not _MAGIC.search(part):
        return part == name
    return _compiled(part)(name)


def _compiled(part: str) -> Callable[[str], bool]:
    try:
        # Braces are plain text in ignore files.
        return matcher(f"./{part}".replace("{", "\\{"))
    except ValueError:
        return lambda _: False
