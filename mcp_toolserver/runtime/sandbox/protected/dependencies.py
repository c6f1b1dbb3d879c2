"""Folders of installed packages: commands may remove them and install them again with all that is in them."""

import hashlib
import os
import re
import stat
from functools import lru_cache

from mcp_toolserver.runtime.sandbox.protected.git_dir import LONGEST_POINTER, MOST_STATE, read, read_text
from mcp_toolserver.runtime.sandbox.protected.names import GIT, protected_name
from mcp_toolserver.runtime.sandbox.protected.open_nofollow import NO_FOLDER, opened

FOLDERS = frozenset(("node_modules", "site-packages"))

SETTINGS = frozenset((".devcontainer", ".husky", ".idea", ".vscode", ".zed"))
"""Programs act upon these in the folder that a user opens, and nobody opens an installed package."""

MOST_ENTRIES = 1_000
MOST_BYTES = 4 << 20
"""Of something whose content is compared; what has more is mounted read-only as elsewhere."""

_INDEX_VERSIONS = (2, 3)
"""Those in which a path is written in full (git, Documentation/gitformat-index.txt)."""


def lies_in_package(root: str, path: str, tracked: set[str]) -> bool:
    """Whether `path`, from `root`, lies in a folder of installed packages in which git tracks no file.

    A folder in which it tracks one is added to `tracked`, and stays one: commands can make git forget that.
    """
    folders = path.split("/")[:-1]
    first = next((number for number, name in enumerate(folders) if name in FOLDERS), None)
    if first is None:
        return False
    outermost = os.path.join(root, *folders[: first + 1])
    if outermost not in tracked and _is_tracked(outermost):
        tracked.add(outermost)
    return outermost not in tracked


def is_settings_folder(path: str) -> bool:
    """Whether `path` has one of the names in `SETTINGS`."""
    return protected_name(path.rpartition("/")[2]) in SETTINGS


def _is_tracked(folder: str) -> bool:
    """Whether git tracks a file in the absolute `folder`, or nobody can tell."""
    above: str = os.path.dirname(folder)
    while not os.path.lexists(f"{above}/{GIT}"):
        if above == "/":
            return False
        above = os.path.dirname(above)
    place = f"{above.rstrip('/')}/{GIT}"
    if not os.path.isdir(place):
        pointer = (read_text(NO_FOLDER, place, LONGEST_POINTER) or "").removeprefix("gitdir: ").strip()
        place = os.path.join(above, pointer)
    try:
        status = os.stat(f"{place}/index")
    except OSError:
        return False
    stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
    return _holds(place, stamp, os.fsencode(os.path.relpath(folder, above)) + b"/")


@lru_cache(maxsize=256)
def _holds(place: str, stamp: tuple[int, ...], wanted: bytes) -> bool:  # stands for the index
    """Whether the index in the `.git` folder `place` has, or may have, a path that begins with `wanted`."""
    index = read(NO_FOLDER, f"{place}/index", MOST_STATE)
    if index is None or int.from_bytes(index[4:8]) not in _INDEX_VERSIONS:
        return True
    try:
        is_split = any(name.startswith("sharedindex") for name in os.listdir(place))
    except OSError:
        return True
    return is_split or any(
        # One may begin in another.
        _begins_entry(index, found.start())
        for found in re.finditer(b"(?=%s)" % re.escape(wanted), index)
    )


def _begins_entry(index: bytes, at: int) -> bool:
    """Whether a path begins there: its length is in the flags before it, which may be followed by two more
    bytes."""
    length = min(index.find(b"\0", at) - at, 0xFFF)
    return any(int.from_bytes(index[start : start + 2]) & 0xFFF == length for start in (at - 2, at - 4))


def content(root: int, path: str) -> str | None:
    """A digest of what lies at `path` below the folder open as `root`, whatever its inodes and times.

    None if it has too much, cannot be read, or is gone.
    """
    digest, waiting, left, room = hashlib.sha256(), [path], MOST_ENTRIES, MOST_BYTES
    while waiting:
        here = waiting.pop()
        left -= 1
        try:
            descriptor = opened(root, here)
            try:
                status = os.fstat(descriptor)
                names = (
                    sorted(os.listdir(f"/proc/self/fd/{descriptor}")) if stat.S_ISDIR(status.st_mode) else []
                )
            finally:
                os.close(descriptor)
            is_link = stat.S_ISLNK(status.st_mode)
            body = os.fsencode(os.readlink(here, dir_fd=root)) if is_link else b""
        except OSError:
            return None
        if stat.S_ISREG(status.st_mode):
            body = read(root, here, room)
        if body is None or left < 0:
            return None
        room -= len(body)
        waiting += [f"{here}/{name}" for name in names]
        digest.update(repr((here, stat.S_IFMT(status.st_mode), body)).encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
