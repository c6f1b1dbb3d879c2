"""Names that programs act upon unasked: git, editors, agents, shells. Nobody but the user changes them.

Names are compared as the blindest file system there is would compare them, for matching only: no path is ever
opened by its folded spelling.
"""

import re
import unicodedata
from collections.abc import Container, Mapping, Sequence

from mcp_toolserver.text.file_names import folded

GIT = ".git"

PROJECT_RULES = ".mcp-toolserver.toml"
"""The rules of a project for this server."""

PROJECT_FILES: Mapping[str, tuple[str, ...]] = {
    "claude-code": (".mcp.json", ".claude/settings.json"),
    "vscode": (".vscode/mcp.json",),
    "cursor": (".cursor/mcp.json",),
    "zed": (".zed/settings.json",),
    "gemini": (".gemini/settings.json",),
    "qwen": (".qwen/settings.json",),
    "opencode": ("opencode.json",),
    "jetbrains": (".junie/mcp/mcp.json",),
    "droid": (".factory/mcp.json",),
    "kiro": (".kiro/settings/mcp.json",),
    "crush": ("crush.json",),
    "amp": (".amp/settings.json",),
    "kilo": (".kilo/kilo.jsonc",),
    "roo": (".roo/mcp.json",),
}
"""The files of a project in which each client of `setup` keeps its servers, and settings apart from them."""

_SHARED = (".github",)
"""Folders of many programs: what one of them acts upon in there is protected, not all of it."""


def _protected_part(path: str) -> str:
    """What to protect for a program to which a project gives the file `path`."""
    first, _, rest = path.partition("/")
    return f"{first}/{rest.partition('/')[0]}" if first in _SHARED else first


NAMES = frozenset(
    (
        *(_protected_part(path) for paths in PROJECT_FILES.values() for path in paths),
        PROJECT_RULES,
        # Version control
        *(GIT, ".gitconfig", ".gitmodules", ".hg", ".husky", ".jj", ".sl"),
        # Agents
        *(".agents", ".aider.conf.yml", ".amazonq", ".clinerules", ".codex", ".continue", ".crush.json"),
        *(".github/copilot", ".github/hooks", ".kilocode", "kilo.json", "kilo.jsonc", ".opencode"),
        *("opencode.jsonc", ".openhands", ".trae", ".windsurf"),
        # Editors
        *(".devcontainer", ".devcontainer.json", ".dir-locals.el", ".dir-locals-2.el", ".exrc", ".gvimrc"),
        *(".helix", ".idea", ".nvim.lua", ".nvimrc", ".vimrc"),
        # Shells
        *(".bash_aliases", ".bash_login", ".bash_logout", ".bash_profile", ".bashrc", ".cshrc", ".inputrc"),
        *(".kshrc", ".login", ".logout", ".mkshrc", ".profile", ".tcshrc", ".zlogin", ".zlogout"),
        *(".zprofile", ".zshenv", ".zshrc", ".envrc", ".mise.toml", "mise.toml", ".mise.local.toml"),
        "mise.local.toml",
        # Interpreters, debuggers and searches
        *(".gdbinit", ".ghci", ".iex.exs", ".irbrc", ".lldbinit", ".ocamlinit", ".octaverc", ".pdbrc"),
        *(".perldb", ".pryrc", ".renviron", ".ripgreprc", ".rprofile"),
    )
)
"""Protected at any depth, whatever lies there: a folder, a file or a link. In lower case; one with a slash is
a name in a folder of `_SHARED`. docs/protected-names.md has the program that acts on each."""

EXCEPTABLE = NAMES - {GIT, PROJECT_RULES}
"""The names that the operator can except with --writable-name."""

IN_GIT_FOLDER = (
    *("hooks", "config", "config.worktree", "commondir", "info/attributes"),
    # Addresses from before there was a `config`; objects of elsewhere; other commits under the same ids.
    *("remotes", "branches", "objects/info/alternates", "objects/info/http-alternates"),
    *("info/grafts", "refs/replace"),
    # Where it exists, a PATH with `.git/safe/../../bin` finds the programs of the work tree.
    "safe",
)
"""What git runs, or takes the names of programs and places from, in the folder of a repository, module or
worktree. Only who sets the repository up changes it."""

NESTED_GIT_FOLDERS = ("modules", "worktrees")
"""Where the folders of submodules and worktrees lie, themselves nested."""

_IN_GIT_FOLDER = tuple(f"{path}/" for path in IN_GIT_FOLDER)
_NUMBERED = re.compile(r"~\d+")


def _short(name: str) -> str:
    """The first 8.3 alias that Windows gives `name`: `git~1`, `mcp~1.jso`."""
    stem, dot, extension = name.strip(".").rpartition(".")
    stem = (stem if dot else extension).replace(".", "")
    return f"{stem[:6]}~1" + (f".{extension[:3]}" if dot else "")


_SHORT = {_short(name): name for name in (*NAMES, *_SHARED) if "/" not in name}
_LAST_PARTS = frozenset(name.rpartition("/")[2] for name in NAMES)
_FIRST = frozenset(letter for name in _LAST_PARTS for letter in (name[0], name[0].upper()))


def protected_name(name: str, folder: str = "") -> str | None:
    """The protected name that `name` in a folder called `folder` is or may stand for, or None."""
    if name in NAMES:
        return name
    if name.isascii() and name[:1] not in _FIRST and "~" not in name:
        return None
    long = _long(name)
    inner = f"{_long(folder)}/{long}"
    return long if long in NAMES else inner if inner in NAMES else None


def is_protected(relative_path: str, *, git_writable: bool, writable_names: Container[str] = ()) -> bool:
    """Whether a tool must leave `relative_path` alone.

    With `git_writable` the folder of a repository may change, but for what git runs or configures itself by.
    The operator excepts `writable_names`.
    """
    parts = [part for part in map(_folded, relative_path.replace("\\", "/").split("/")) if part]
    for index, part in enumerate(parts):
        name = protected_name(part, parts[index - 1] if index else "")
        inside = parts[index + 1 :]
        if name == GIT and git_writable and inside:
            if _is_git_hook_or_config(inside):
                return True
        elif name and name not in writable_names:
            return True
    return False


def _is_git_hook_or_config(inside: Sequence[str]) -> bool:
    """Whether `inside`, the way from the folder of a repository, is one of `IN_GIT_FOLDER` or below one."""
    nested = inside[0] in NESTED_GIT_FOLDERS
    starts = range(len(inside)) if nested else range(1)
    return any(f"{'/'.join(inside[start:])}/".startswith(_IN_GIT_FOLDER) for start in starts)


def _long(name: str) -> str:
    """`name` folded, in place of an 8.3 alias the name that it may stand for."""
    folded = _folded(name)
    return _SHORT.get(_NUMBERED.sub("~1", folded), folded)


def _folded(name: str) -> str:
    """`name` without what some file system ignores: case, invisible characters, streams, trailing dots."""
    if not name.isascii():
        visible = "".join(character for character in name if unicodedata.category(character) != "Cf")
        name = unicodedata.normalize("NFKC", folded(unicodedata.normalize("NFKC", visible)))
    return name.lower().partition(":")[0].rstrip(". ")
