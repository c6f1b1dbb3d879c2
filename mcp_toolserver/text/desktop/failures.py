"""What the failure of a desktop program means, and what the user can do about it.

Standard error is matched against known messages and never shown, because it can contain private text.

macOS asks the user before a program may control another application or record the screen. The permission
belongs to the application that started the server, because macOS holds that one responsible for its child
processes. An application without the needed entitlement or usage description cannot ask: macOS then refuses
without a dialog, and the application is not listed in System Settings
(https://github.com/anthropics/claude-code/issues/95398 reports that of Claude Desktop).
"""

import re
from collections.abc import Mapping, Sequence

from mcp_toolserver.errors import InvalidInput, NotFound, ToolError, Unavailable
from mcp_toolserver.text.desktop.commands import name

_RESPONSIBLE = (
    "for the app that started this server, such as Terminal or Claude Desktop, then start that app again. If "
    "the app is not listed there, it cannot ask for this: start the server from Terminal."
)

_SETTINGS = "System Settings > Privacy & Security"

AUTOMATION = (
    "macOS does not let this server control Notes. Ask the user to allow Notes in "
    f"{_SETTINGS} > Automation {_RESPONSIBLE}"
)

SCREEN_RECORDING = (
    "macOS does not let this server record the screen. Ask the user to allow it in "
    f"{_SETTINGS} > Screen & System Audio Recording (before macOS 15: Screen Recording) {_RESPONSIBLE}"
)

DIALOG_WAITS = (
    "macOS may be asking the user for a permission. Ask the user to answer the dialog on the screen, then "
    "call again."
)

NO_SESSION = (
    "There is no desktop session: the server runs over SSH or as a daemon, or nobody is logged in. The user "
    "who is logged in at the screen has to start the server."
)

_UNREACHABLE = (
    "Notes could not be reached. Ask the user to open Notes, then call again. If that does not help, the "
    "user has to start the server from Terminal: macOS gives no access over SSH, in daemons and in some apps."
)

_NOT_STARTED = (
    "macOS could not start the app: it is damaged or blocked, or the server has no desktop session (over "
    "SSH, in a daemon). Ask the user to open it."
)

_APPLE_EVENTS: Mapping[int, str] = {
    -1743: AUTOMATION,
    -1744: AUTOMATION,
    -10004: AUTOMATION,
    -1712: f"Notes did not answer in time. {DIALOG_WAITS}",
    -1728: "Notes has no such object: it was deleted meanwhile, or Notes has no account. Ask the user.",
    -600: _UNREACHABLE,
    -609: _UNREACHABLE,
    -10810: _UNREACHABLE,
}
"""Meanings of the error numbers that osascript prints in parentheses at the end.

Source: the SDK header MacErrors.h: errAEEventNotPermitted -1743, errAEEventWouldRequireUserConsent -1744,
errAEPrivilegeError -10004, errAETimeout -1712, errAENoSuchObject -1728, procNotFound -600, connectionInvalid
-609, kLSUnknownErr -10810.
"""

_NUMBER = re.compile(rb"\((-\d{1,6})\)\s*\Z")

_Meaning = tuple[re.Pattern[bytes], type[ToolError], str]

_MESSAGES: Mapping[str, Sequence[_Meaning]] = {
    "osascript": ((re.compile(rb"Application can.{1,3}t be found"), Unavailable, "Notes is not installed."),),
    "open": (
        (re.compile(rb"Unable to find application"), NotFound, "macOS has no app with this name."),
        (re.compile(rb"No application knows how to open"), NotFound, "macOS has no app that opens this."),
        (re.compile(rb"LSOpenURLsWithRole"), Unavailable, _NOT_STARTED),
    ),
    "say": ((re.compile(rb"Voice .* not found"), InvalidInput, "No such voice is installed. Omit `voice`."),),
    "screencapture": ((re.compile(rb"could not create image"), Unavailable, SCREEN_RECORDING),),
    "mdfind": (
        (re.compile(rb"Failed to create query"), InvalidInput, "Spotlight does not understand the query."),
    ),
}
"""Messages of macOS programs, as users report them: for example `open`
(https://github.com/warpdotdev/warp/issues/4188), `say` (https://github.com/renpy/renpy/issues/5556) and
`screencapture` (https://github.com/anthropics/claude-code/issues/95398)."""

_MACOS = frozenset(("pbpaste", "pbcopy", *_MESSAGES))


def explain_failure(program: str, printed: bytes = b"") -> ToolError:
    """Return the error for a program that failed and printed this."""
    helper = name(program)
    for pattern, kind, meaning in _MESSAGES.get(helper, ()):
        if pattern.search(printed):
            return kind(meaning)
    number = _NUMBER.search(printed) if helper == "osascript" else None
    code = int(number[1]) if number else 0
    if code in _APPLE_EVENTS:
        return Unavailable(_APPLE_EVENTS[code])
    what = f"{helper} failed{f' with error {code}' if code else ''}."
    return Unavailable(f"{what} Ask the user whether their desktop is there.")


def explain_timeout(program: str) -> str:
    """Return what to say about a program that took too long."""
    helper = name(program)
    advice = DIALOG_WAITS if helper in _MACOS else "Ask the user whether their desktop is there."
    return f"{helper} took too long. {advice}"
