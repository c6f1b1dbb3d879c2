"""Argument lists of the programs that list windows, and parsers of their output.

A program chooses the titles of its windows, so the parsers read ids only from fields that cannot contain a
title.
"""

import re
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from mcp_toolserver.text.desktop.commands import Argv, name
from mcp_toolserver.text.desktop.osascript import script_command

_SCREEN = """
ObjC.import("CoreGraphics");
ObjC.bindFunction("CGSessionCopyCurrentDictionary", ["id", []]);
ObjC.bindFunction("CGWindowListCopyWindowInfo", ["id", ["unsigned int", "unsigned int"]]);
ObjC.bindFunction("CGPreflightScreenCaptureAccess", ["bool", []]);
ObjC.bindFunction("CGRequestScreenCaptureAccess", ["bool", []]);
const ON_SCREEN = 1, WITHOUT_DESKTOP = 16, ANY_WINDOW = 0;
function run() {
  const answer = (problem, windows) => encodeReply({problem: problem, windows: windows});
  const session = ObjC.deepUnwrap($.CGSessionCopyCurrentDictionary());
  const windows = ObjC.deepUnwrap($.CGWindowListCopyWindowInfo(ON_SCREEN | WITHOUT_DESKTOP, ANY_WINDOW));
  if (!session || !windows) return answer("no session", []);
  if (session.CGSSessionScreenIsLocked) return answer("locked", []);
  const others = windows.filter((each) => !["Dock", "Window Server"].includes(each.kCGWindowOwnerName));
  if (!$.CGPreflightScreenCaptureAccess() && !others.some((each) => "kCGWindowName" in each)) {
    $.CGRequestScreenCaptureAccess();
    return answer("permission", []);
  }
  return answer("", windows.filter((each) => each.kCGWindowLayer === 0).map((each) => ({
    id: each.kCGWindowNumber,
    title: [each.kCGWindowOwnerName, each.kCGWindowName].filter((word) => word).join(": "),
  })));
}
"""
"""Lists the windows on the screen of macOS, from front to back, or says why no picture can be taken.

* Without Screen Recording, screencapture may succeed with the desktop's background only
  (https://github.com/sonichi/sutando/issues/2942), so the permission is checked first. For child processes
  CGPreflightScreenCaptureAccess may deny a permission that exists
  (https://github.com/screenpipe/screenpipe/pull/3623). A title of another app's window then proves it: macOS
  reports kCGWindowName only with the permission.
* CGRequestScreenCaptureAccess does not wait: it adds the app to the list in System Settings.
* Both lists are NULL outside a session with a screen, for example over SSH.
* Source of the functions and numbers: the SDK headers CGWindow.h and CGSession.h; the key
  CGSSessionScreenIsLocked is not documented.
"""

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


class _WindowReply(BaseModel):
    model_config = ConfigDict(frozen=True, defer_build=True)

    id: int
    title: str


class _ScreenReply(BaseModel):
    model_config = ConfigDict(frozen=True, defer_build=True)

    problem: str
    windows: tuple[_WindowReply, ...]


def macos_screen(osascript: str) -> Argv:
    """Describe the screen of macOS."""
    return script_command(osascript, _SCREEN)


def parse_macos_screen(printed: bytes) -> tuple[str, list[Window]]:
    """Return why no picture can be taken (empty if one can), and the windows from front to back.

    Raises:
        ValueError: the output is not a description of a screen.
    """
    reply = _ScreenReply.model_validate_json(printed)
    return reply.problem, [Window(id=str(each.id), title=each.title) for each in reply.windows]


def portrait(program: str, window: Window) -> Argv:
    """Print a picture of one window, or of what is seen where it is."""
    match name(program), window.area:
        case "scrot", Area() as area:
            place = f"{area.x},{area.y},{area.width},{area.height}"
            return program, "--silent", "--autoselect", place, "-"
        case _:
            return program, "-silent", "-window", window.id, "png:-"
