"""The programs that reach a desktop, found without running any, and what is missing where there is none.

Imported before the broker is forked, so it is light.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mcp_toolserver.capabilities.prices import Capability
from mcp_toolserver.runtime.host_programs import find_program

SESSION = ("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
"""The variables that lead to the user's desktop."""

PRIVATE = (
    Capability.CLIPBOARD_READ,
    Capability.SCREEN,
    Capability.WINDOWS,
    Capability.NOTES_READ,
)
"""What shows a user's secrets."""

_BOTH, _X, _WAYLAND, _NONE = "either", "DISPLAY", "WAYLAND_DISPLAY", ""
_ONLY_X = "X without Wayland"

_LINUX: Mapping[Capability, Mapping[str, str]] = {
    Capability.DESKTOP_OPEN: {"xdg-open": _BOTH},
    Capability.DESKTOP_NOTIFY: {"notify-send": _BOTH},
    Capability.DESKTOP_SAY: {"spd-say": _NONE, "espeak-ng": _NONE, "espeak": _NONE},
    Capability.CLIPBOARD_READ: {"wl-paste": _WAYLAND, "xclip": _X},
    Capability.CLIPBOARD_WRITE: {"wl-copy": _WAYLAND, "xclip": _X},
    Capability.SCREEN: {"grim": _WAYLAND, "scrot": _X, "import": _X},
    Capability.WINDOWS: {"import": _ONLY_X, "scrot": _ONLY_X},
    Capability.DESKTOP_APP: {"gtk-launch": _BOTH},
    Capability.DESKTOP_FIND: {"plocate": _NONE, "locate": _NONE, "localsearch": _NONE, "tracker3": _NONE},
    Capability.NOTES_READ: {},
    Capability.NOTES_WRITE: {},
}
"""What does each, best first, and the display that it needs. Not xsel: it now and then gives back
a long text as an empty one."""

_MACOS: Mapping[Capability, Mapping[str, str]] = {
    Capability.DESKTOP_OPEN: {"open": _NONE},
    Capability.DESKTOP_NOTIFY: {"osascript": _NONE},
    Capability.DESKTOP_SAY: {"say": _NONE},
    Capability.CLIPBOARD_READ: {"pbpaste": _NONE},
    Capability.CLIPBOARD_WRITE: {"pbcopy": _NONE},
    Capability.SCREEN: {"screencapture": _NONE},
    Capability.WINDOWS: {"screencapture": _NONE},
    Capability.DESKTOP_APP: {"open": _NONE},
    Capability.DESKTOP_FIND: {"mdfind": _NONE},
    Capability.NOTES_READ: {"osascript": _NONE},
    Capability.NOTES_WRITE: {"osascript": _NONE},
}

_BESIDE: Mapping[str, Mapping[Capability, Sequence[str]]] = {
    "linux": {Capability.WINDOWS: ("xprop", "xwininfo")},
    "darwin": {Capability.WINDOWS: ("osascript",)},
}
"""What the programs for it cannot do without."""

_NO_PROGRAM: Mapping[Capability, str] = {
    Capability.WINDOWS: "no program can tell the windows of Wayland apart; take_screenshot shows the screen",
    Capability.NOTES_READ: "the notes are those of Apple Notes, which is on macOS only",
    Capability.NOTES_WRITE: "the notes are those of Apple Notes, which is on macOS only",
}
"""Why none of the table can do it on a desktop that is there."""

DESKTOP = tuple(_LINUX)


@dataclass(frozen=True, kw_only=True)
class DesktopPrograms:
    """What there is."""

    programs: Mapping[Capability, str] = field(default_factory=dict[Capability, str])
    """Absolute paths; nothing for what is not there."""
    beside: Mapping[str, str] = field(default_factory=dict[str, str])
    """Absolute paths of the programs that those need, by name."""
    wanted: Mapping[Capability, str] = field(default_factory=dict[Capability, str])
    """What would do it, in words."""
    session: tuple[tuple[str, str], ...] = ()
    """The variables of `SESSION` that are set."""


def find_desktop(
    path_entries: Sequence[str],
    roots: Sequence[str],
    environ: Mapping[str, str],
    platform: str = sys.platform,
) -> DesktopPrograms:
    """The programs in `path_entries` but not in `roots` that can reach the desktop of `environ`."""
    table = {"linux": _LINUX, "darwin": _MACOS}.get(platform, {})
    session = tuple((name, environ[name]) for name in SESSION if environ.get(name))
    seen = _displays(session)
    more = _BESIDE.get(platform, {})
    names_beside = {name for names in more.values() for name in names}
    beside = {name: found for name in names_beside if (found := find_program([name], path_entries, roots))}
    programs: dict[Capability, str] = {}
    wanted: dict[Capability, str] = {}
    for need, names in table.items():
        usable = [name for name, display in names.items() if display in seen]
        missing = [name for name in more.get(need, ()) if name not in beside]
        program = find_program(usable, path_entries, roots)
        if program is not None and not missing:
            programs[need] = program
        wanted[need] = _words(need, usable if program is None else missing, seen)
    return DesktopPrograms(programs=programs, beside=beside, wanted=wanted, session=session)


def _displays(session: Sequence[tuple[str, str]]) -> set[str]:
    """What kinds of display there are."""
    seen = {_NONE, *(name for name, _ in session)}
    if seen & {_X, _WAYLAND}:
        seen.add(_BOTH)
    if _X in seen and _WAYLAND not in seen:
        seen.add(_ONLY_X)
    return seen


def lacking_desktop(found: DesktopPrograms, *, private: bool) -> Mapping[Capability, str]:
    """What is not there, and why."""
    missing = {
        need: found.wanted.get(need, "there is no program for it on this platform")
        for need in DESKTOP
        if need not in found.programs
    }
    if private:
        return missing
    switch = "it shows what a user may want to keep private; the operator can allow it with --desktop-private"
    return {**dict.fromkeys(PRIVATE, switch), **missing}


def _words(need: Capability, usable: Sequence[str], seen: set[str]) -> str:
    if usable:
        return f"no {' or '.join(usable)} was found on the PATH of this server"
    if need in _NO_PROGRAM and (_BOTH in seen or need is not Capability.WINDOWS):
        return _NO_PROGRAM[need]
    return "there is no desktop: neither DISPLAY nor WAYLAND_DISPLAY is set for this server"
