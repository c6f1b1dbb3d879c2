"""The programs that reach a desktop, found without running any, and what is missing where there is none.

Imported before the broker is forked, so it is light.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mcp_toolserver.capabilities import Capability
from mcp_toolserver.runtime.host_programs import find_program

SESSION = ("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
"""The variables that lead to the user's desktop."""

PRIVATE = (Capability.CLIPBOARD_READ, Capability.SCREEN)
"""What shows a user's secrets."""

_BOTH, _X, _WAYLAND, _NONE = "either", "DISPLAY", "WAYLAND_DISPLAY", ""

_LINUX: Mapping[Capability, Mapping[str, str]] = {
    Capability.DESKTOP_OPEN: {"xdg-open": _BOTH},
    Capability.DESKTOP_NOTIFY: {"notify-send": _BOTH},
    Capability.DESKTOP_SAY: {"spd-say": _NONE, "espeak-ng": _NONE, "espeak": _NONE},
    Capability.CLIPBOARD_READ: {"wl-paste": _WAYLAND, "xclip": _X},
    Capability.CLIPBOARD_WRITE: {"wl-copy": _WAYLAND, "xclip": _X},
    Capability.SCREEN: {"grim": _WAYLAND, "scrot": _X, "import": _X},
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
}

DESKTOP = tuple(_LINUX)


@dataclass(frozen=True, kw_only=True)
class DesktopPrograms:
    """What there is."""

    programs: Mapping[Capability, str] = field(default_factory=dict[Capability, str])
    """Absolute paths; nothing for what is not there."""
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
    seen = {_NONE, *(name for name, _ in session)}
    if seen & {_X, _WAYLAND}:
        seen.add(_BOTH)
    found = {
        need: find_program([name for name, display in names.items() if display in seen], path_entries, roots)
        for need, names in table.items()
    }
    return DesktopPrograms(
        programs={need: program for need, program in found.items() if program is not None},
        wanted={need: _words(names, seen) for need, names in table.items()},
        session=session,
    )


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
    return {**missing, **dict.fromkeys(PRIVATE, switch)}


def _words(names: Mapping[str, str], seen: set[str]) -> str:
    usable = [name for name, display in names.items() if display in seen]
    if not usable:
        return "there is no desktop: neither DISPLAY nor WAYLAND_DISPLAY is set for this server"
    return f"no {' or '.join(usable)} was found on the PATH of this server"
