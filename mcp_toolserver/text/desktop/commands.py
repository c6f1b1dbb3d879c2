"""Argument lists of desktop programs.

Text from the model is always a separate argument, never a part of a script.
"""

from collections.abc import Callable, Mapping

Argv = tuple[str, ...]

_NOTICE = "display notification (item 2 of argv) with title (item 1 of argv)"
_FRONT = (
    'tell application "System Events" to tell (first process whose frontmost is true) to '
    "get {position, size} of front window"
)
KEPT = "f=$(mktemp) || exit 1; trap 'rm -f \"$f\"' EXIT; "
"""Start of a script that needs a temporary file."""
_MAC_SCREEN = f'{KEPT}"$0" -x -t png "$f" && cat "$f"'
_MAC_WINDOW = f'{KEPT}r=$(osascript -e \'{_FRONT}\' | tr -d \' \') && "$0" -x -t png -R "$r" "$f" && cat "$f"'


def name(program: str) -> str:
    """Return the base name of a program."""
    return program.rpartition("/")[2]


def opening(program: str, target: str) -> Argv:
    """Show `target`, which is an address or an absolute path, and so no option."""
    return program, target


def launching(program: str, app: str, target: str) -> Argv:
    """Start `app`, whose name is no option, with `target` if there is one."""
    start = (program, "-a", app) if name(program) == "open" else (program, app)
    return (*start, *((target,) if target else ()))


def notice(program: str, title: str, message: str) -> Argv:
    """Show a notice."""
    if name(program) == "osascript":
        return program, *applescript(_NOTICE), "--", title, message
    return program, "--app-name=mcp-toolserver", "--", title, message


def applescript(*lines: str) -> Argv:
    """Build the arguments of an AppleScript that takes its values from the arguments after it."""
    return tuple(word for line in ("on run argv", *lines, "end run") for word in ("-e", line))


_VOICES: Mapping[str, tuple[Argv, str]] = {
    "say": ((), "-v"),
    "spd-say": (("--wait",), "--synthesis-voice"),
    "espeak-ng": ((), "-v"),
    "espeak": ((), "-v"),
}


def speech(program: str, text: str, voice: str) -> Argv:
    """Read `text` aloud, to the end."""
    always, option = _VOICES[name(program)]
    return program, *always, *((option, voice) if voice else ()), "--", text


_COPY: Mapping[str, Argv] = {
    "pbcopy": (),
    "wl-copy": ("--foreground", "--type", "text/plain;charset=utf-8"),
    "xclip": ("-quiet", "-selection", "clipboard", "-in"),
}
"""Each program runs as long as it owns the clipboard, except that of macOS."""

_PASTE: Mapping[str, Argv] = {
    "pbpaste": (),
    "wl-paste": ("--no-newline", "--type", "text"),
    "xclip": ("-selection", "clipboard", "-out"),
}


def copying(program: str) -> Argv:
    """Take the clipboard's text from standard input."""
    return program, *_COPY[name(program)]


def pasting(program: str) -> Argv:
    """Print the clipboard's text."""
    return program, *_PASTE[name(program)]


_READERS = {"pbcopy": "pbpaste", "wl-copy": "wl-paste"}


def reader(program: str) -> str:
    """Return the program that reads what `program` copied: a companion program, or itself."""
    return program.removesuffix(name(program)) + _READERS.get(name(program), name(program))


_CAMERAS: Mapping[str, tuple[Callable[[str], Argv], Callable[[str], Argv] | None]] = {
    "screencapture": (
        lambda program: ("/bin/sh", "-c", _MAC_SCREEN, program),
        lambda program: ("/bin/sh", "-c", _MAC_WINDOW, program),
    ),
    "grim": (lambda program: (program, "-t", "png", "-"), None),
    "scrot": (
        lambda program: (program, "--silent", "-"),
        lambda program: (program, "--silent", "--focused", "-"),
    ),
    "import": (lambda program: (program, "-silent", "-window", "root", "png:-"), None),
}


def camera(program: str, *, window: bool) -> Argv | None:
    """Print a picture of the screen, or of the window in front; None where that cannot be had."""
    screen, front = _CAMERAS[name(program)]
    shot = front if window else screen
    return None if shot is None else shot(program)
