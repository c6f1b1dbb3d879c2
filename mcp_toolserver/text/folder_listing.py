"""Formats folders as an indented list: one name per line; folders end in `/`, special files are labelled."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from mcp_toolserver.capabilities.files import FolderContent, FolderEntry

_UNSEEN = " …"
"""Behind a folder that was not looked into."""


def named(entry: FolderEntry) -> str:
    """Return the name of an entry, with what it is."""
    match entry.kind:
        case "file":
            return entry.name
        case "folder":
            return f"{entry.name}/"
        case _:
            return f"{entry.name} ({entry.kind})"


def detailed(entry: FolderEntry) -> str:
    """Format an entry with its size in bytes, time of change and name."""
    size = "" if entry.size is None or entry.kind == "folder" else f"{entry.size}"
    changed = "" if entry.changed is None else _time(entry.changed)
    return f"{size:>12}  {changed:<17}  {named(entry)}"


def _time(seconds: float) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%MZ}"
    except (OverflowError, OSError, ValueError):
        return "?"


def branches(folders: Mapping[str, FolderContent], folder: str = ".") -> Iterator[str]:
    """Yield the lines of a tree, each indented by its depth."""
    indent = "" if folder == "." else "  " * (folder.count("/") + 1)
    content = folders[folder]
    for entry in content.entries:
        inner = entry.name if folder == "." else f"{folder}/{entry.name}"
        is_unseen = entry.kind == "folder" and inner not in folders
        yield f"{indent}{named(entry)}{_UNSEEN * is_unseen}"
        if inner in folders:
            yield from branches(folders, inner)
    if content.error:
        yield f"{indent}[{content.error}]"
    if left := content.total - len(content.entries):
        yield f"{indent}[{'' if content.complete else 'over '}{left:,} more]"
    elif folder != "." and not content.total and not content.error:
        yield f"{indent}[nothing to show]"


def unseen(folders: Mapping[str, FolderContent]) -> bool:
    """Whether a folder was not looked into."""
    return any(
        entry.kind == "folder" and (entry.name if folder == "." else f"{folder}/{entry.name}") not in folders
        for folder, content in folders.items()
        for entry in content.entries
    )
