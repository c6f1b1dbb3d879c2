"""Argument lists of the programs that list windows, and parsers of their output.

A program chooses the titles of its windows, so the parsers read ids only from fields that cannot contain a
title.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mcp_toolserver.text.desktop.commands import KEPT, Argv, name

_SHOWN_ON_MACOS = """
ObjC.import("CoreGraphics");
ObjC.bindFunction("CFMakeCollectable", ["id", ["void *"]]);
function run() {
  const which = $.kCGWindowListOptionOnScreenOnly | $.kCGWindowListExcludeDesktopElements;
  const found = $.CGWindowListCopyWindowInfo(which, $.kCGNullWindowID);
  const windows = ObjC.deepUnwrap($.CFMakeCollectable(found)).filter((each) => each.kCGWindowLayer === 0);
  return JSON.stringify(windows.map((each) => ({
    id: each.kCGWindowNumber,
    title: [each.kCGWindowOwnerName, each.kCGWindowName].filter((word) => word).join(": "),
  })));
}
"""

_MAC_PICTURE = f'{KEPT}"$0" -x -o -t png -l "$1" "$f" && cat "$f"'

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


@dataclass(frozen=True, kw_only=True)
class Area:
    """A part of the screen."""

    x: int
    y: int
    width: int
    height: int

    def clipped_to(self, screen: "Area") -> "Area | None":
        """Return the part within `screen`; None if there is none."""
        left, top = max(self.x, 0), max(self.y, 0)
        right = min(self.x + self.width, screen.width)
        bottom = min(self.y + self.height, screen.height)
        if right <= left or bottom <= top:
            return None
        return Area(x=left, y=top, width=right - left, height=bottom - top)


@dataclass(frozen=True, kw_only=True)
class Window:
    """A window on the screen."""

    id: str
    title: str
    area: Area | None = None
    """Its position; None where the program captures a window by its id."""


def managed(xprop: str) -> Argv:
    """Name the windows of a window manager."""
    return xprop, "-root", "_NET_CLIENT_LIST"


def managed_ids(printed: str) -> list[str] | None:
    """Return the ids of managed windows; None without a window manager."""
    _, is_told, ids = printed.partition("window id #")
    return _ID.findall(ids) if is_told else None


def children(xwininfo: str) -> Argv:
    """Name the windows of a screen without a window manager."""
    return xwininfo, "-root", "-children"


def child_ids(printed: str) -> list[str]:
    """Return the ids of child windows."""
    _, _, below = printed.partition("\n  Parent window id:")
    _, _, listed = below.partition("\n")
    return list(dict.fromkeys(_CHILD.findall(listed)))


def particulars(xwininfo: str, window: str) -> Argv:
    """Describe a window; `-root` is the screen."""
    return (xwininfo, "-stats", *(("-root",) if window == "-root" else ("-id", window)))


def described(window: str, printed: str) -> Window | None:
    """Parse the description of a window; None if it is not visible. No title can imitate later fields."""
    found = _SHOWN.match(printed)
    if found is None or (found["kind"], found["state"]) != ("InputOutput", "IsViewable"):
        return None
    area = Area(**{part: int(found[part]) for part in ("x", "y", "width", "height")})
    return Window(id=window, title=found["title"] or "", area=area)


def shown_on_macos(osascript: str) -> Argv:
    """Name the windows that are on the screen."""
    return osascript, "-l", "JavaScript", "-e", _SHOWN_ON_MACOS


def windows_on_macos(printed: str) -> list[Window]:
    """Parse a list of windows. Raises: ValueError: the output is not one."""
    reply: Sequence[Mapping[str, object]] = json.loads(printed)
    try:
        return [Window(id=str(int(str(each["id"]))), title=str(each["title"])) for each in reply]
    except (KeyError, TypeError) as error:
        raise ValueError("no list of windows") from error


def portrait(program: str, window: Window) -> Argv:
    """Print a picture of one window, or of what is seen where it is."""
    match name(program), window.area:
        case "screencapture", _:
            return "/bin/sh", "-c", _MAC_PICTURE, program, window.id
        case "scrot", Area() as area:
            place = f"{area.x},{area.y},{area.width},{area.height}"
            return program, "--silent", "--autoselect", place, "-"
        case _:
            return program, "-silent", "-window", window.id, "png:-"
