"""Finds programs on this machine without running any.

This module is imported before the broker forks, so its imports are few.
"""

import os
import sys
from collections.abc import Sequence

POWERSHELLS = ("pwsh", "powershell")
ENGINES = ("docker", "podman", "container")
"""Container engines; the last is Apple's."""

HOMEBREW = ("/opt/homebrew/bin", "/usr/local/bin")
"""Where Homebrew puts programs on Apple silicon and on Intel (docs.brew.sh/Installation). A server that an
application starts gets the PATH of launchd, which has neither: /usr/bin:/bin:/usr/sbin:/sbin."""

DEVELOPER_DIRECTORIES = (
    "/var/db/xcode_select_link",
    "/Library/Developer/CommandLineTools",
    "/Applications/Xcode.app/Contents/Developer",
)
"""Apple's developer tools: the choice of `xcode-select --switch` (a link, see
milen.me/writings/xcode-select-symlink), and the places of the command line tools and of Xcode."""

_SYSTEM = "/usr/bin"

_SHIMS = frozenset(f"{_SYSTEM}/{name}" for name in ("git", "clangd", "sourcekit-lsp"))
"""Programs of macOS that look up and start the one of the developer directory, see xcode-select(1). Without
one they ask the user in a window to install it. In a sandbox they cannot write the cache of their lookups
(github.com/openai/codex/issues/191)."""


def program_folders(
    path: str, developer_directories: Sequence[str] = DEVELOPER_DIRECTORIES
) -> tuple[str, ...]:
    """Return the folders of `path`, a PATH; on macOS also those of Homebrew and of the developer tools.

    Homebrew comes last. The developer tools come before /usr/bin, which has shims for them.
    """
    entries = path.split(os.pathsep)
    if sys.platform != "darwin":
        return tuple(entries)
    real = (os.path.realpath(directory) for directory in developer_directories)
    tools = next(
        (f"{directory}/usr/bin" for directory in real if os.path.isdir(f"{directory}/usr/bin")), None
    )
    if tools is not None:
        entries.insert(entries.index(_SYSTEM) if _SYSTEM in entries else len(entries), tools)
    return tuple(dict.fromkeys((*entries, *HOMEBREW)))


def find_program(names: Sequence[str], path_entries: Sequence[str], roots: Sequence[str] = ()) -> str | None:
    """Return the absolute path of the first of `names` in `path_entries`.

    Programs inside `roots` are ignored, because a command could have put them there.
    """
    files = (os.path.join(entry, name) for name in names for entry in path_entries if os.path.isabs(entry))
    return next((file for file in files if is_usable(file, roots)), None)


def is_usable(file: str, roots: Sequence[str]) -> bool:
    """Whether `file` is an executable outside `roots`, and not one that only looks for another."""
    is_shim = sys.platform == "darwin" and file in _SHIMS
    return not is_shim and is_executable(file) and not is_inside(file, roots)


def powershell_start(program: str) -> tuple[str, ...]:
    """Return the first arguments for PowerShell; the script follows."""
    return (program, "-NoProfile", "-NonInteractive", "-Command")


def is_executable(file: str) -> bool:
    return os.path.isfile(file) and os.access(file, os.X_OK)


def is_inside(file: str, roots: Sequence[str]) -> bool:
    """Whether `file` is inside a root by any of its names: a link in a root can be changed to point
    elsewhere."""
    within = {os.path.abspath(file), os.path.realpath(os.path.dirname(file)), os.path.realpath(file)}
    real_roots = {os.path.realpath(root) for root in roots}
    return any(os.path.commonpath((place, root)) == root for place in within for root in real_roots)
