"""The output of the programs that list windows.

A program chooses the titles of its windows, so the parsers read ids only from fields that cannot contain a
title.
"""

import re
from dataclasses import dataclass

from pydantic import TypeAdapter

from mcp_toolserver.errors import Unavailable
from mcp_toolserver.text.desktop.programs import SCREEN_PROBLEMS
from mcp_toolserver.text.documents.file_type import pixels

_ID = re.compile(r"0x[0-9a-f]+")
_CHILD = re.compile(r"^ +(0x[0-9a-f]+) ", re.MULTILINE)
_SHOWN = re.compile(
    r"\s*xwininfo: Window id: (0x[0-9a-f]+)(?: \"(?P<title>.*)\"| \(.*\))?\s*\n"
    r"\s+Absolute upper-left X: +(?P<x>-?\d+)\n"
    r"\s+Absolute upper-left Y: +(?P<y>-?\d+)\n"
    r".*?\n"
    r"\s+Width: (?P<width>\d+)\n"
    r"\s+Height: (?P<height>\d+)\n"
    r".*?\n"
    r"\s+Class: (?P<kind>\w+)\n"
    r".*?\n"
    r"\s+Map State: (?P<state>\w+)\n",
    re.DOTALL,
)

Area = tuple[int, int, int, int]
"""Left, top, width and height of a part of the screen."""


@dataclass(frozen=True)
class Window:
    """A window on the screen."""

    id: str
    title: str
    area: Area = (0, 0, 0, 0)
    """What is seen of it; nothing where the program captures a window by its id."""


def managed_ids(printed: str) -> list[str] | None:
    """Return the ids of managed windows; None without a window manager."""
    _, is_told, ids = printed.partition("window id #")
    return _ID.findall(ids) if is_told else None


def child_ids(printed: str) -> list[str]:
    """Return the ids of child windows."""
    _, _, below = printed.partition("\n  Parent window id:")
    _, _, listed = below.partition("\n")
    return list(dict.fromkeys(_CHILD.findall(listed)))


def visible(window: str, printed: str, screen: Area = (0, 0, 1 << 16, 1 << 16)) -> Window | None:
    """Parse the description of a window; None if it is not visible on the screen.

    No title can imitate later fields.
    """
    found = _SHOWN.match(printed)
    if found is None or (found["kind"], found["state"]) != ("InputOutput", "IsViewable"):
        return None
    x, y, width, height = (int(found[part]) for part in ("x", "y", "width", "height"))
    left, top = max(x, 0), max(y, 0)
    area = (left, top, min(x + width, screen[2]) - left, min(y + height, screen[3]) - top)
    return Window(window, found["title"] or "", area) if min(area[2:]) > 0 else None


def windows_of_macos(printed: bytes) -> list[Window]:
    """Parse what the script `SCREEN` reports.

    Raises:
        ValueError: the output is not a description of a screen.
        Unavailable: no picture can be taken.
    """
    problem, found = TypeAdapter(tuple[str, tuple[tuple[int, str], ...]]).validate_json(printed)
    if problem:
        raise Unavailable(SCREEN_PROBLEMS.get(problem, SCREEN_PROBLEMS["permission"]))
    return [Window(str(number), title) for number, title in found]


def png_size(data: bytes) -> str:
    """Return the size of a picture in words. Raises: Unavailable: it is no PNG."""
    size = pixels(data, "image/png") if data.startswith(b"\x89PNG") else None
    if size is None:
        raise Unavailable("No picture could be taken. Ask the user whether the screen may be recorded.")
    return f"{size[0]} x {size[1]} pixels"
