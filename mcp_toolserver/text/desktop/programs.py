"""The table of programs that use the user's desktop: their arguments, and what their failures mean.

Text from the model is always a separate argument or standard input, never a part of a script. Standard error
is matched against known messages and never shown, because it can contain private text.

macOS asks the user before a program may control another application or record the screen. The permission
belongs to the application that started the server, because macOS holds that one responsible for its child
processes. An application without the needed entitlement or usage description cannot ask: macOS then refuses
without a dialog, and the application is not listed in System Settings
(https://github.com/anthropics/claude-code/issues/95398 reports that of Claude Desktop).

Sources: the manual pages open(1), say(1), pbcopy(1), screencapture(1), sips(1), mdfind(1).
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mcp_toolserver.capabilities.permissions import Capability
from mcp_toolserver.errors import InvalidInput, NotFound, ToolError, Unavailable
from mcp_toolserver.text.desktop import scripts

Words = Sequence[str]
Build = Callable[[Words, Words], Words]
"""Absolute paths of the program and of its additional programs, values of the call → the command."""

Hint = tuple[bytes, type[ToolError], str]
"""A pattern in what the program prints, and its meaning."""

FORMATTED = ("{\\rtf", "%!PS")
"""pbcopy stores text that begins like this as RTF or EPS."""

MAX_PICTURE = 5 << 20
MAX_CLIPBOARD = 40_000
"""Maximum bytes that are read."""

NONE, X, WAYLAND, EITHER, ONLY_X = "none", "DISPLAY", "WAYLAND_DISPLAY", "either", "X without Wayland"
MACOS = "macOS"
"""What a program needs: a display of Linux or none, or macOS."""

_SHELL = ("/bin/sh", "-c")
_CAPTURE = (
    'd=$(mktemp -d "${TMPDIR:-/tmp}/picture.XXXXXXXX") || exit; trap \'rm -rf "$d"\' EXIT; f=$d/picture.png; '
    'scale=$1; shift; "$0" "$@" "$f" || exit; '
    f'[ "$(wc -c < "$f")" -le {MAX_PICTURE} ] || "$scale" -Z 2000 "$f" > /dev/null; cat "$f"'
)
"""screencapture writes to a file only. sips scales a picture above `MAX_PICTURE`, as of a Retina display, to
at most 2,000 pixels in width and height."""
_FEW_VARIABLES = (
    'exec /usr/bin/env -i ${HOME+"HOME=$HOME"} USER="$USER" LOGNAME="$LOGNAME" '
    'PATH=/usr/bin:/bin:/usr/sbin:/sbin "$0" "$@"'
)
"""macOS passes the environment on to the app (open(1)). That of commands is for unattended programs, and its
TMPDIR and the variable by which the broker recognises the processes of a command end with the command."""
_IN_UTF_8 = 'export LC_ALL=en_US.UTF-8; exec "$0" "$@"'
"""Without a locale, as in a server that a desktop app started, pbcopy and pbpaste do not use UTF-8."""

MOST_NAMED = 1_000
"""Maximum files requested from an index; some may be hidden from the caller."""

_NO_PATH = re.compile(r"(?:[^/\n][^\n]*\n)+")
"""Lines that are no path; mdfind may print a line on its query parser before the first path."""
_LOCAL = re.compile(r"file://(/[^\s\x1b]*)")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")

_RESPONSIBLE = (
    "for the app that started this server, such as Terminal or Claude Desktop, then start that app again. If "
    "the app is not listed there, it cannot ask for this: start the server from Terminal."
)
_AUTOMATION = (
    "macOS does not let this server control Notes. Ask the user to allow Notes in System Settings > Privacy "
    f"& Security > Automation {_RESPONSIBLE}"
)
_RECORDING = (
    "macOS does not let this server record the screen. Ask the user to allow it in System Settings > Privacy "
    f"& Security > Screen & System Audio Recording (before macOS 15: Screen Recording) {_RESPONSIBLE}"
)
_DIALOG_WAITS = (
    "macOS may be asking the user for a permission. Ask the user to answer the dialog on the screen, then "
    "call again."
)
_UNREACHABLE = (
    "Notes could not be reached. Ask the user to open Notes, then call again. If that does not help, the "
    "user has to start the server from Terminal: macOS gives no access over SSH, in daemons and in some apps."
)
_NO_OBJECT = "Notes has no such object: it was deleted meanwhile, or Notes has no account. Ask the user."
_NOT_STARTED = (
    "macOS could not start the app: it is damaged or blocked, or the server has no desktop session (over "
    "SSH, in a daemon). Ask the user to open it."
)
_NO_SESSION = (
    "There is no desktop session: the server runs over SSH or as a daemon, or nobody is logged in. The user "
    "who is logged in at the screen has to start the server."
)
_LOCKED = "The screen is locked. Ask the user to unlock it, then call again."
SCREEN_PROBLEMS = {"no session": _NO_SESSION, "locked": _LOCKED, "permission": _RECORDING}
"""What the problems mean that the script `SCREEN` reports."""

_HINTS: dict[str, tuple[Hint, ...]] = {
    "osascript": (
        (rb"Application can.{1,3}t be found", Unavailable, "Notes is not installed."),
        (rb"\((-1743|-1744|-10004)\)\s*\Z", Unavailable, _AUTOMATION),
        (rb"\(-1712\)\s*\Z", Unavailable, f"Notes did not answer in time. {_DIALOG_WAITS}"),
        (rb"\(-1728\)\s*\Z", Unavailable, _NO_OBJECT),
        (rb"\((-600|-609|-10810)\)\s*\Z", Unavailable, _UNREACHABLE),
    ),
    "open": (
        (rb"Unable to find application", NotFound, "macOS has no app with this name."),
        (rb"No application knows how to open", NotFound, "macOS has no app that opens this."),
        (rb"LSOpenURLsWithRole", Unavailable, _NOT_STARTED),
    ),
    "say": ((rb"Voice .* not found", InvalidInput, "No such voice is installed. Omit `voice`."),),
    "screencapture": ((rb"could not create image", Unavailable, _RECORDING),),
    "mdfind": ((rb"Failed to create query", InvalidInput, "Spotlight does not understand the query."),),
}
"""Messages of macOS programs, as users report them: for example `open`
(https://github.com/warpdotdev/warp/issues/4188), `say` (https://github.com/renpy/renpy/issues/5556) and
`screencapture` (https://github.com/anthropics/claude-code/issues/95398).

osascript prints the number of an error in parentheses at the end. Source: the SDK header MacErrors.h:
errAEEventNotPermitted -1743, errAEEventWouldRequireUserConsent -1744, errAEPrivilegeError -10004,
errAETimeout -1712, errAENoSuchObject -1728, procNotFound -600, connectionInvalid -609, kLSUnknownErr -10810.
"""


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


@dataclass(frozen=True)
class Program:
    """A row of the table: a program that provides a capability."""

    need: Capability
    name: str
    display: str
    argv: Build
    also: tuple[str, ...] = ()
    """Additional programs that it needs."""
    reader: str = ""
    """The companion of a program that copies, which reads the clipboard; empty for itself."""
    stdin: Callable[[Words], str] = lambda _: ""
    """Values of the call → standard input."""
    paths: Callable[[bytes, bool], list[str]] = null_separated
    """Output of a search, and whether that is all → the paths."""
    empty_status: int = 0
    """The exit status that means "no result" if nothing was written to standard error."""
    seconds: float = 30.0
    most: int = 4 << 20
    """Maximum bytes of output."""
    stays: bool = False
    """Whether what it opens ends with it."""
    late: str = ""
    """What it means if it takes too long."""


def _argv(*words: str | tuple[int, Words], shell: str = "") -> Build:
    """Words with the values of the call as `{0}` and `{1}`, after a script that starts the program.

    Those behind a number are left out if the value with that number is empty.
    """
    start = (*_SHELL, shell) if shell else ()

    def argv(at: Words, given: Words) -> Words:
        groups = ((word,) if isinstance(word, str) else word[1] if given[word[0]] else () for word in words)
        return *start, at[0], *(word.format(*given) for group in groups for word in group)

    return argv


def script(source: str) -> Build:
    """Run a script whose function `run` may call `readRequest` and `encodeReply`.

    An Apple event starts the app that it is for.
    """
    words = ("-l", "JavaScript", "-e", scripts.START + source)
    return lambda at, _: (*_SHELL, _FEW_VARIABLES, at[0], *words)


def _screen(*options: str) -> Build:
    """Print a picture of the screen; the program has no option for the window in front."""

    def argv(at: Words, given: Words) -> Words:
        if given[0]:
            raise Unavailable(f"{name_of(at)} cannot capture a window; capture the screen.")
        return at[0], *options

    return argv


def _capture(at: Words, given: Words) -> Words:
    """Print a picture of the main screen, or of the window with an id without its shadow, without sound."""
    window = ("-o", f"-l{given[0]}") if given[0] else ()
    return *_SHELL, _CAPTURE, at[0], at[2], "-x", "-t", "png", *window


def _locate(at: Words, given: Words) -> Words:
    # A folder is never a pattern.
    inside = re.sub(r"[*?\[\]\\]", r"\\\g<0>", given[1].rstrip("/")) + "/*"
    return at[0], "--all", "--null", "--ignore-case", *_LIMIT, "--", inside, given[0]


def _mdfind(at: Words, given: Words) -> Words:
    # It reads its options by itself: nothing that begins with a space is one.
    return at[0], "-0", "-onlyin", given[1], f" {given[0]}" if given[0].startswith("-") else given[0]


def _notice(given: Words) -> str:
    return json.dumps({"title": given[0], "message": given[1]}, ensure_ascii=False)


_LIMIT = ("--limit", str(MOST_NAMED))
_SAY = _argv((1, ("-v", "{1}")), "--", "{0}")
_SAY_AND_WAIT = _argv("--wait", (1, ("--synthesis-voice", "{1}")), "--", "{0}")
_TRACKER = _argv("search", *_LIMIT, "--disable-color", "--", "{0}")
_COPY_ON_WAYLAND = _argv("--foreground", "--type", "text/plain;charset=utf-8")
_PASTE_ON_WAYLAND = _argv("--no-newline", "--type", "text")
_PASTE_ON_X = _argv("-selection", "clipboard", "-out")
_PASTE_ON_MACOS = _argv("-Prefer", "txt", shell=_IN_UTF_8)
_NOTIFY = _argv("--app-name=mcp-toolserver", "--", "{0}", "{1}")
_OPEN_APP = ("{0}", (1, ("{1}",)))
_X_ALSO, _MACOS_ALSO = ("xprop", "xwininfo"), ("osascript", "sips")
_NOTES_SECONDS = 100.0
"""The first call waits while macOS asks the user; the answer holds for later calls."""
_NOTES_LATE = f"Notes did not answer within {_NOTES_SECONDS:.0f} seconds. {_DIALOG_WAITS}"

PROGRAMS: tuple[Program, ...] = (
    Program(Capability.DESKTOP_OPEN, "xdg-open", EITHER, _argv("{0}"), stays=True),
    Program(Capability.DESKTOP_OPEN, "open", MACOS, _argv("{0}", shell=_FEW_VARIABLES)),
    Program(Capability.DESKTOP_APP, "gtk-launch", EITHER, _argv(*_OPEN_APP), stays=True),
    Program(Capability.DESKTOP_APP, "open", MACOS, _argv("-a", *_OPEN_APP, shell=_FEW_VARIABLES)),
    Program(Capability.DESKTOP_NOTIFY, "notify-send", EITHER, _NOTIFY),
    Program(Capability.DESKTOP_NOTIFY, "osascript", MACOS, script(scripts.NOTICE), stdin=_notice),
    Program(Capability.DESKTOP_SAY, "spd-say", NONE, _SAY_AND_WAIT, seconds=150.0),
    Program(Capability.DESKTOP_SAY, "espeak-ng", NONE, _SAY, seconds=150.0),
    Program(Capability.DESKTOP_SAY, "espeak", NONE, _SAY, seconds=150.0),
    Program(Capability.DESKTOP_SAY, "say", MACOS, _SAY, seconds=150.0),
    # A program that copies runs as long as it owns the clipboard, except that of macOS. xsel is not used: it
    # sometimes returns an empty string for a long text.
    Program(Capability.CLIPBOARD_READ, "wl-paste", WAYLAND, _PASTE_ON_WAYLAND, most=MAX_CLIPBOARD),
    Program(Capability.CLIPBOARD_READ, "xclip", X, _PASTE_ON_X, most=MAX_CLIPBOARD),
    Program(Capability.CLIPBOARD_READ, "pbpaste", MACOS, _PASTE_ON_MACOS, most=MAX_CLIPBOARD),
    Program(Capability.CLIPBOARD_WRITE, "wl-copy", WAYLAND, _COPY_ON_WAYLAND, reader="wl-paste"),
    Program(Capability.CLIPBOARD_WRITE, "xclip", X, _argv("-quiet", "-selection", "clipboard", "-in")),
    Program(Capability.CLIPBOARD_WRITE, "pbcopy", MACOS, _argv(shell=_IN_UTF_8), reader="pbpaste"),
    Program(Capability.SCREEN, "grim", WAYLAND, _screen("-t", "png", "-"), most=MAX_PICTURE),
    Program(Capability.SCREEN, "scrot", X, _argv("--silent", (0, ("--focused",)), "-"), most=MAX_PICTURE),
    Program(Capability.SCREEN, "import", X, _screen("-silent", "-window", "root", "png:-"), most=MAX_PICTURE),
    Program(Capability.SCREEN, "screencapture", MACOS, _capture, _MACOS_ALSO, most=MAX_PICTURE),
    Program(Capability.WINDOWS, "import", ONLY_X, _argv("-silent", "-window", "{0}", "png:-"), _X_ALSO),
    Program(Capability.WINDOWS, "scrot", ONLY_X, _argv("--silent", "--autoselect", "{1}", "-"), _X_ALSO),
    Program(Capability.WINDOWS, "screencapture", MACOS, _capture, _MACOS_ALSO),
    Program(Capability.DESKTOP_FIND, "plocate", NONE, _locate, empty_status=1),
    Program(Capability.DESKTOP_FIND, "locate", NONE, _locate, empty_status=1),
    Program(Capability.DESKTOP_FIND, "localsearch", NONE, _TRACKER, paths=file_urls),
    Program(Capability.DESKTOP_FIND, "tracker3", NONE, _TRACKER, paths=file_urls),
    Program(Capability.DESKTOP_FIND, "mdfind", MACOS, _mdfind),
    *(
        Program(need, "osascript", MACOS, script(scripts.NOTES), seconds=_NOTES_SECONDS, late=_NOTES_LATE)
        for need in (Capability.NOTES_READ, Capability.NOTES_WRITE)
    ),
)
"""The programs of each capability, best first."""


def name_of(command: Words) -> str:
    """Return the name of the program that a command is for: `sh -c SCRIPT PROGRAM` is for PROGRAM."""
    return (command[3] if tuple(command[:2]) == _SHELL else command[0]).rpartition("/")[2]


def explain_failure(command: Words, printed: bytes = b"") -> ToolError:
    """Return the error for a command that failed and printed this."""
    name = name_of(command)
    for pattern, kind, meaning in _HINTS.get(name, ()):
        if re.search(pattern, printed):
            return kind(meaning)
    number = re.search(rb"\((-\d{1,6})\)\s*\Z", printed) if name == "osascript" else None
    what = f"{name} failed{f' with error {int(number[1])}' if number else ''}."
    return Unavailable(f"{what} Ask the user whether their desktop is there.")


def explain_timeout(row: Program, command: Words) -> str:
    """Return what to say about a command of a program that took too long."""
    advice = _DIALOG_WAITS if row.display == MACOS else "Ask the user whether their desktop is there."
    return row.late or f"{name_of(command)} took too long. {advice}"


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
