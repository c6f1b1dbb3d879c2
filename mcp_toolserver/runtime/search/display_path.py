"""Joins names of found files to the searched folder, and escapes them for display."""

import re

from mcp_toolserver.capabilities.files import CanonicalPath

_UNSHOWABLE = re.compile("[\0-\x1f\x7f\ud800-\udfff]")


def inside(folder: str, name: str) -> CanonicalPath:
    if folder == ".":
        return CanonicalPath(name)
    return CanonicalPath(f"/{name}" if folder == "/" else f"{folder}/{name}")


def parent(path: str) -> CanonicalPath:
    return CanonicalPath(path.rpartition("/")[0] or ("/" if path.startswith("/") else "."))


def showable(path: str) -> str:
    """A path on one line. Control characters are escaped, so that no name can imitate another line."""
    if path.isascii() and path.isprintable():
        return path
    return _UNSHOWABLE.sub(lambda match: f"\\x{ord(match[0]) & 0xFF:02x}", path)
