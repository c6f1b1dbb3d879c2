"""Paths that mean something else on Windows than their letters say, refused before any call sees them.

To look is already too late: opening a path on another computer sends that computer the user's credentials.
"""

import re
import sys

_RESERVED = re.compile(r"(?:con|prn|aux|nul|conin\$|conout\$|clock\$|(?:com|lpt)[0-9¹²³])", re.IGNORECASE)
_SHORT = re.compile(r"[^.~]{0,7}~[0-9]{1,6}")
_DRIVE = re.compile(r"[A-Za-z]:/")
_NEVER = re.compile(r'[<>"|?*\x00-\x1f]')


def apply() -> bool:
    """Whether paths are read that way here."""
    return sys.platform.startswith(("win", "cygwin"))


def windows_refusal(path: str) -> str | None:
    """Why Windows would not take `path` for what its letters say, or None."""
    flat = path.replace("\\", "/")
    if flat.startswith("//"):
        return "it starts like a path to another computer or to a device; send a path inside the workspace"
    if flat.startswith("/??/"):
        return "it starts like a name of the system's own; send a path inside the workspace"
    drive = _DRIVE.match(flat)
    parts = (flat[drive.end() :] if drive else flat).split("/")
    return next((why for part in parts if (why := _part(part))), None)


def _part(part: str) -> str | None:
    if part in ("", ".", ".."):
        return None
    if ":" in part:
        return f"'{part}' has a colon, which on Windows names a drive's current folder or a hidden stream"
    if part != part.rstrip(". "):
        return f"'{part}' ends in a dot or a space, which Windows leaves out"
    if _NEVER.search(part):
        return f"{part!r} has a character that no name on Windows can have"
    stem = part.partition(".")[0].rstrip(" ")
    if _RESERVED.fullmatch(stem):
        return f"'{part}' is the name of a device on Windows"
    if _SHORT.fullmatch(stem):
        return f"'{part}' may be Windows' short name of another file; send the whole name"
    return None
