"""Argument lists of desktop programs.

Text from the model is always a separate argument or standard input, never a part of a script.

Sources of the macOS options: the manual pages open(1), say(1), pbcopy(1), screencapture(1), sips(1).
"""

from collections.abc import Callable, Mapping, Sequence

Argv = tuple[str, ...]

MAX_PICTURE = 5 << 20
"""Maximum size of one picture, in bytes."""

_SHELL = ("/bin/sh", "-c")
_CAPTURE = (
    'd=$(mktemp -d "${TMPDIR:-/tmp}/picture.XXXXXXXX") || exit; trap \'rm -rf "$d"\' EXIT; f=$d/picture.png; '
    'scale=$1; shift; "$0" "$@" "$f" || exit; '
    f'[ "$(wc -c < "$f")" -le {MAX_PICTURE} ] || "$scale" -Z 2000 "$f" > /dev/null; cat "$f"'
)
_WITH_FEW_VARIABLES = (
    'exec /usr/bin/env -i ${HOME+"HOME=$HOME"} USER="$USER" LOGNAME="$LOGNAME" '
    'PATH=/usr/bin:/bin:/usr/sbin:/sbin "$0" "$@"'
)
_IN_UTF_8 = 'export LC_ALL=en_US.UTF-8; exec "$0" "$@"'


def name(program: str) -> str:
    """Return the base name of a program."""
    return program.rpartition("/")[2]


def program(command: Sequence[str]) -> str:
    """Return the program that a command is for: `sh -c SCRIPT PROGRAM` is for PROGRAM."""
    return command[3] if tuple(command[:2]) == _SHELL else command[0]


def hands_over(program: str) -> bool:
    """Whether `program` lets a service start the target, and so ends at once: macOS' `open` does."""
    return name(program) == "open"


def starting_apps(program: str) -> Argv:
    """Return the start of a command whose program starts apps of macOS.

    macOS passes the environment on to the app (open(1)). That of commands is for unattended programs, and its
    TMPDIR and the variable by which the broker recognises the processes of a command end with the command.
    """
    return *_SHELL, _WITH_FEW_VARIABLES, program


def opening(program: str, target: str) -> Argv:
    """Show `target`, which is an address or an absolute path, and so no option."""
    return (*(starting_apps(program) if hands_over(program) else (program,)), target)


def launching(program: str, app: str, target: str) -> Argv:
    """Start `app`, whose name is no option, with `target` if there is one."""
    start = (*starting_apps(program), "-a", app) if hands_over(program) else (program, app)
    return (*start, *((target,) if target else ()))


def notice(program: str, title: str, message: str) -> Argv:
    """Show a notice with notify-send."""
    return program, "--app-name=mcp-toolserver", "--", title, message


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
    "pbpaste": ("-Prefer", "txt"),
    "wl-paste": ("--no-newline", "--type", "text"),
    "xclip": ("-selection", "clipboard", "-out"),
}

_FORMATTED = ("{\\rtf", "%!PS")
"""pbcopy stores text that begins like this as RTF or EPS."""


def copying(program: str) -> Argv:
    """Take the clipboard's text from standard input."""
    return (*_in_utf_8(program), *_COPY[name(program)])


def pasting(program: str) -> Argv:
    """Print the clipboard's text."""
    return (*_in_utf_8(program), *_PASTE[name(program)])


def _in_utf_8(program: str) -> Argv:
    """Without a locale, as in a server that a desktop app started, pbcopy and pbpaste do not use UTF-8."""
    return (*_SHELL, _IN_UTF_8, program) if name(program).startswith("pb") else (program,)


def copies_as_text(program: str, text: str) -> bool:
    """Whether the program stores `text` as plain text."""
    return name(program) != "pbcopy" or not text.startswith(_FORMATTED)


_READERS = {"pbcopy": "pbpaste", "wl-copy": "wl-paste"}


def reader(program: str) -> str:
    """Return the program that reads what `program` copied: a companion program, or itself."""
    return program.removesuffix(name(program)) + _READERS.get(name(program), name(program))


def capture(screencapture: str, sips: str, window: str = "") -> Argv:
    """Print a picture of the main screen of macOS, or of a window without its shadow, as PNG without sound.

    screencapture writes to a file only. sips scales a picture above `MAX_PICTURE`, as of a Retina display, to
    at most 2,000 pixels in width and height.
    """
    options = ("-o", f"-l{window}") if window else ()
    return *_SHELL, _CAPTURE, screencapture, sips, "-x", "-t", "png", *options


_CAMERAS: Mapping[str, tuple[Callable[[str], Argv], Callable[[str], Argv] | None]] = {
    "grim": (lambda program: (program, "-t", "png", "-"), None),
    "scrot": (
        lambda program: (program, "--silent", "-"),
        lambda program: (program, "--silent", "--focused", "-"),
    ),
    "import": (lambda program: (program, "-silent", "-window", "root", "png:-"), None),
}


def camera(program: str, *, window: bool) -> Argv | None:
    """Print a picture of the screen, or of the window in front; None where it has no option for that."""
    screen, front = _CAMERAS[name(program)]
    shot = front if window else screen
    return None if shot is None else shot(program)
