"""The output of file index programs."""

import re
from collections.abc import Iterable

MOST_NAMED = 1_000
"""Maximum files requested from an index; some may be hidden from the caller."""

_NO_PATH = re.compile(r"(?:[^/\n][^\n]*\n)+")
"""Lines that are no path; mdfind may print a line on its query parser before the first path."""
_LOCAL = re.compile(r"file://(/[^\s\x1b]*)")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")


def null_separated(printed: bytes, whole: bool) -> list[str]:
    """Return absolute paths that end with NUL, each once; the last one is cut off unless `whole`."""
    paths = printed.decode("utf-8", "surrogateescape").split("\0")[: None if whole else -1]
    return _absolute(_NO_PATH.sub("", path, count=1) for path in paths)


def file_urls(printed: bytes, whole: bool) -> list[str]:
    """Return the paths of the lines that contain a file URL, each once."""
    lines = printed.decode("utf-8", "surrogateescape").split("\n")[: None if whole else -1]
    return _absolute(_unescaped(found[1]) for found in map(_LOCAL.search, lines) if found)


def _absolute(paths: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(path for path in paths if path.startswith("/")))


def _unescaped(path: str) -> str:
    """Decode the percent escapes of a path in a file URL."""
    data = path.encode("utf-8", "surrogateescape")
    whole = _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), data)
    return whole.decode("utf-8", "surrogateescape")


def is_unindexed(printed: bytes, folder: str) -> bool:
    """Whether mdutil reports that the volume of `folder` is not indexed.

    It prints the path of each volume and a colon, and below that the indented status. The home folders are on
    the data volume; the volume `/` stands for it, because its links make them paths of `/`.
    """
    volume, status = "", dict[str, str]()
    for line in printed.decode("utf-8", "surrogateescape").splitlines():
        if line.startswith("/"):
            volume = line.rstrip().removesuffix(":")
        else:
            status.setdefault(volume, line)
    around = (each for each in status if each in ("/", folder) or folder.startswith(f"{each}/"))
    return "disabled" in status.get(max(around, key=len, default=""), "")
