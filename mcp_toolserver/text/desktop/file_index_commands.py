"""Argument lists of file index programs, and parsers of their output."""

import re

from mcp_toolserver.text.desktop.commands import Argv, name

MOST_NAMED = 1_000
"""Maximum files requested from an index; some may be hidden from the caller."""

_GLOB = re.compile(r"[*?\[\]\\]")
_NO_PATH = re.compile(r"(?:[^/\n][^\n]*\n)+")
"""Lines that are no path; mdfind may print a line on its query parser before the first path."""
_LOCAL = re.compile(r"file://(/[^\s\x1b]*)")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")


def lookup(program: str, query: str, folder: str) -> Argv:
    """Name what matches `query`, in `folder` if the program can tell."""
    match name(program):
        case "mdfind":
            # It reads its options by itself: nothing that begins with a space is one.
            asked = f" {query}" if query.startswith("-") else query
            # Source: mdfind(1).
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


def restricts_to_folder(program: str) -> bool:
    """Whether the program names only what is in the folder of `lookup`."""
    return name(program) == "mdfind"


def index_status(program: str) -> Argv:
    """Report which volumes are indexed; empty for a program without such a report. Source: mdutil(1)."""
    return (program.removesuffix("mdfind") + "mdutil", "-a", "-s") if name(program) == "mdfind" else ()


def is_unindexed(printed: bytes, folder: str) -> bool:
    """Whether mdutil reports that the volume of `folder` is not indexed.

    It prints the path of each volume and a colon, and below that the indented status. The home folders are on
    the data volume; the volume `/` stands for it, because its links make them paths of `/`.
    """
    volume, found = "", ""
    status: dict[str, str] = {}
    for line in printed.decode("utf-8", "surrogateescape").splitlines():
        if line.startswith("/"):
            volume = line.rstrip().removesuffix(":")
        else:
            status.setdefault(volume, line)
    for volume in status:
        if volume == "/" or folder == volume or folder.startswith(f"{volume}/"):
            found = max(found, volume, key=len)
    return "disabled" in status.get(found, "")


def named(program: str, printed: bytes, *, whole: bool) -> list[str]:
    """Parse the printed paths: absolute, in the order of the program, each once."""
    text = printed.decode("utf-8", "surrogateescape")
    if name(program) in ("mdfind", "plocate", "locate"):
        paths = [_NO_PATH.sub("", path, count=1) for path in text.split("\0")[: None if whole else -1]]
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
