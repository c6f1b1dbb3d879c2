"""Finds the helper programs for the desktop without running any, and explains what is missing.

This module is imported before the broker forks, so its imports are few.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mcp_toolserver.capabilities.permissions import DESKTOP, Capability
from mcp_toolserver.runtime.which import find_program

SESSION = ("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
"""Environment variables that identify the user's desktop session."""

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
"""The programs for each capability, best first, with the display they need. xsel is not used: it sometimes
returns an empty string for a long text."""

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

_DEPENDENCIES: Mapping[str, Mapping[Capability, Sequence[str]]] = {
    "linux": {Capability.WINDOWS: ("xprop", "xwininfo")},
    "darwin": dict.fromkeys((Capability.SCREEN, Capability.WINDOWS), ("osascript", "sips")),
}
"""Additional programs that a capability needs."""

_NO_PROGRAM: Mapping[Capability, str] = {
    Capability.WINDOWS: "no program can capture single windows on Wayland; use take_screenshot",
    Capability.NOTES_READ: "the notes are those of Apple Notes, which is on macOS only",
    Capability.NOTES_WRITE: "the notes are those of Apple Notes, which is on macOS only",
}
"""Why no program can provide a capability on an existing desktop."""


@dataclass(frozen=True, kw_only=True)
class DesktopExecutables:
    """The installed helper programs."""

    programs: Mapping[Capability, str] = field(default_factory=dict[Capability, str])
    """Absolute paths by capability; missing ones are absent."""
    dependencies: Mapping[str, str] = field(default_factory=dict[str, str])
    """Absolute paths of the additional programs, by name."""
    reasons: Mapping[Capability, str] = field(default_factory=dict[Capability, str])
    """Why a capability is unavailable."""
    session: tuple[tuple[str, str], ...] = ()
    """Those variables of `SESSION` that are set."""

    @property
    def missing(self) -> Mapping[str, str]:
        """Why a program is missing, by the name of the capability that it provides."""
        unknown = "there is no program for it on this platform"
        return {need.value: self.reasons.get(need, unknown) for need in DESKTOP if need not in self.programs}


def find_desktop(
    path_entries: Sequence[str],
    roots: Sequence[str],
    environ: Mapping[str, str],
    platform: str = "",
) -> DesktopExecutables:
    """Find the programs in `path_entries`, outside `roots`, that can use the desktop of `environ`.

    An empty `platform` is this machine's.
    """
    platform = platform or sys.platform
    table = {"linux": _LINUX, "darwin": _MACOS}.get(platform, {})
    session = tuple((name, environ[name]) for name in SESSION if environ.get(name))
    seen = _display_kinds(session)
    more = _DEPENDENCIES.get(platform, {})
    dependency_names = {name for names in more.values() for name in names}
    dependencies = {
        name: found for name in dependency_names if (found := find_program([name], path_entries, roots))
    }
    programs: dict[Capability, str] = {}
    reasons: dict[Capability, str] = {}
    for need, names in table.items():
        usable = [name for name, display in names.items() if display in seen]
        missing = [name for name in more.get(need, ()) if name not in dependencies]
        program = find_program(usable, path_entries, roots)
        if program is not None and not missing:
            programs[need] = program
        reasons[need] = _reason(need, usable if program is None else missing, seen)
    return DesktopExecutables(programs=programs, dependencies=dependencies, reasons=reasons, session=session)


def _display_kinds(session: Sequence[tuple[str, str]]) -> set[str]:
    """Return the available kinds of display."""
    seen = {_NONE, *(name for name, _ in session)}
    if seen & {_X, _WAYLAND}:
        seen.add(_BOTH)
    if _X in seen and _WAYLAND not in seen:
        seen.add(_ONLY_X)
    return seen


def _reason(need: Capability, usable: Sequence[str], seen: set[str]) -> str:
    if usable:
        return f"no {' or '.join(usable)} was found on the PATH of this server"
    if need in _NO_PROGRAM and (_BOTH in seen or need is not Capability.WINDOWS):
        return _NO_PROGRAM[need]
    return "there is no desktop: neither DISPLAY nor WAYLAND_DISPLAY is set for this server"
