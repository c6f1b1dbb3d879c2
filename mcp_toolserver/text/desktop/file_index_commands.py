"""Argument lists of file index programs, and parsers of their output."""

import re

from mcp_toolserver.text.desktop.commands import Argv, name

MOST_NAMED = 1_000
"""Maximum files requested from an index; some may be hidden from the caller."""

_GLOB = re.compile(r"[*?\[\]\\]")
_LOCAL = re.compile(r"file://(/[^\s\x1b]*)")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")


def lookup(program: str, query: str, folder: str) -> Argv:
    """Name what matches `query`, in `folder` if the program can tell."""
    match name(program):
        case "mdfind":
            # It reads its options by itself: nothing that begins with a space is one.
            asked = f" {query}" if query.startswith("-") else query
            return program, "-0", "-onlyin", folder, asked
        case "plocate" | "locate":
            inside = _GLOB.sub(r"\\\g<0>", folder.rstrip("/")) + "/*"
            options = ("--all", "--null", "--ignore-case", "--limit", str(MOST_NAMED))
            return program, *options, "--", inside, query
        case _:
            return program, "search", "--limit", str(MOST_NAMED), "--disable-color", "--", query


def status_of_nothing(program: str) -> int:
    """Return the exit status by which the program reports that nothing matches."""
    return 1 if name(program) in ("plocate", "locate") else 0


def named(program: str, printed: bytes, *, whole: bool) -> list[str]:
    """Parse the printed paths: absolute, in the order of the program, each once."""
    text = printed.decode("utf-8", "surrogateescape")
    if name(program) in ("mdfind", "plocate", "locate"):
        paths = text.split("\0")[: None if whole else -1]
    else:
        lines = text.split("\n")[: None if whole else -1]
        found = (_LOCAL.search(line) for line in lines)
        paths = [_unescaped(match[1]) for match in found if match]
    return list(dict.fromkeys(path for path in paths if path.startswith("/")))


def _unescaped(path: str) -> str:
    """Decode the percent escapes of a path in a file URL."""
    data = path.encode("utf-8", "surrogateescape")
    whole = _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), data)
    return whole.decode("utf-8", "surrogateescape")
