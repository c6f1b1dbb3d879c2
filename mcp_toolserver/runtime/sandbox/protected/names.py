"""Names that programs act upon unasked: git, editors, agents, shells. Nobody but the user changes them.

Names are compared as the blindest file system there is would compare them, for matching only: no path is ever
opened by its folded spelling.
"""

import re
import unicodedata
from collections.abc import Sequence

from mcp_toolserver.text.file_names import folded

GIT = ".git"

FOLDERS = frozenset(
    (
        *(GIT, ".husky", ".vscode", ".idea", ".zed", ".devcontainer", ".agents", ".claude", ".codex"),
        *(".cursor", ".gemini", ".junie", ".opencode", ".qwen", ".windsurf"),
    )
)

FILES = frozenset(
    (
        *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile"),
        *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout"),
        *(".envrc", ".ripgreprc", ".gitconfig", ".gitmodules", ".mcp.json"),
    )
)

NAMES = FOLDERS | FILES
"""Protected at any depth, whatever lies there: a folder, a file or a link."""

IN_GIT_FOLDER = ("hooks", "config", "config.worktree", "commondir", "info/attributes")
"""What git runs, or takes the names of programs from, in the folder of a repository, module or worktree."""

NESTED_GIT_FOLDERS = ("modules", "worktrees")
"""Where the folders of submodules and worktrees lie, themselves nested."""

_IN_GIT_FOLDER = tuple(tuple(path.split("/")) for path in IN_GIT_FOLDER)
_NUMBERED = re.compile(r"~\d+")


def _short(name: str) -> str:
    """The first 8.3 alias that Windows gives `name`: `git~1`, `mcp~1.jso`."""
    stem, _, extension = name.strip(".").partition(".")
    return f"{stem[:6]}~1" + (f".{extension[:3]}" if extension else "")


_SHORT = {_short(name): name for name in NAMES}


def same_name(one: str, other: str) -> bool:
    """Whether some file system takes both for the same name."""
    return _folded(one) == _folded(other)


def protected_name(name: str) -> str | None:
    """The protected name that `name` is or may stand for, or None."""
    if name in NAMES:
        return name
    if name.isascii() and not name.startswith(".") and "~" not in name:
        return None
    folded = _folded(name)
    return folded if folded in NAMES else _SHORT.get(_NUMBERED.sub("~1", folded))


def is_protected(relative_path: str, git_writable: bool) -> bool:
    """Whether a tool must leave `relative_path` alone.

    With `git_writable` the folder of a repository may change, but for what git runs or configures itself by.
    """
    parts = [_folded(part) for part in relative_path.replace("\\", "/").split("/")]
    for index, part in enumerate(parts):
        name = protected_name(part)
        inside = [part for part in parts[index + 1 :] if part]
        if name == GIT and git_writable and inside:
            if _is_git_hook_or_config(inside):
                return True
        elif name:
            return True
    return False


def _is_git_hook_or_config(inside: Sequence[str]) -> bool:
    """Whether `inside`, the way from the folder of a repository, is one of `IN_GIT_FOLDER` or below one."""
    nested = inside[0] in NESTED_GIT_FOLDERS
    starts = range(len(inside)) if nested else range(1)
    return any(
        tuple(inside[start : start + len(protected)]) == protected
        for start in starts
        for protected in _IN_GIT_FOLDER
    )


def _folded(name: str) -> str:
    """`name` without what some file system ignores: case, invisible characters, streams, trailing dots."""
    if not name.isascii():
        visible = "".join(character for character in name if unicodedata.category(character) != "Cf")
        name = unicodedata.normalize("NFKC", folded(unicodedata.normalize("NFKC", visible)))
    return name.lower().partition(":")[0].rstrip(". ")
