"""Finds the helper programs for the desktop without running any, and explains what is missing.

This module is imported before the broker forks, so its imports are few.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mcp_toolserver.capabilities.permissions import DESKTOP, Capability
from mcp_toolserver.runtime.which import find_program
from mcp_toolserver.text.desktop.programs import EITHER, MACOS, NONE, ONLY_X, PROGRAMS, WAYLAND, Program, X

SESSION = ("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
"""Environment variables that identify the user's desktop session."""

Installed = tuple[Program, tuple[str, ...]]
"""A program; its absolute path, and those of its additional programs."""


@dataclass(frozen=True, kw_only=True)
class DesktopExecutables:
    found: Mapping[Capability, Installed] = field(default_factory=dict[Capability, Installed])
    """The programs for each available capability."""
    missing: Mapping[str, str] = field(
        default_factory=lambda: {
            need.label: "there is no program for it on this platform" for need in DESKTOP
        }
    )
    """Why a program is missing, by the name of the capability that it provides."""
    session: tuple[tuple[str, str], ...] = ()
    """Those variables of `SESSION` that are set."""

    @property
    def programs(self) -> Mapping[Capability, str]:
        """Absolute paths by capability; missing ones are absent."""
        return {need: paths[0] for need, (_, paths) in self.found.items()}


def find_desktop(
    path_entries: Sequence[str],
    roots: Sequence[str],
    environ: Mapping[str, str],
    platform: str = "",
) -> DesktopExecutables:
    """Find the programs in `path_entries`, outside `roots`, that can use the desktop of `environ`.

    An empty `platform` is this machine's.
    """
    session = tuple((name, environ[name]) for name in SESSION if environ.get(name))
    kinds = {"linux": _display_kinds(dict(session)), "darwin": {MACOS}}.get(platform or sys.platform)
    if kinds is None:
        return DesktopExecutables(session=session)
    rows = [row for row in PROGRAMS if row.display in kinds]
    places = {
        name: find_program([name], path_entries, roots) for row in rows for name in (row.name, *row.also)
    }
    found: dict[Capability, Installed] = {}
    missing: dict[str, str] = {}
    for need in DESKTOP:
        usable = [row for row in rows if row.need is need]
        row = next((row for row in usable if places[row.name]), None)
        lacking = [name for name in row.also if not places[name]] if row else [row.name for row in usable]
        if row and not lacking:
            paths = (places[name] for name in (row.name, *row.also))
            found[need] = row, tuple(path for path in paths if path)
        else:
            missing[need.label] = _reason(need, lacking, kinds)
    return DesktopExecutables(found=found, missing=missing, session=session)


def _display_kinds(session: Mapping[str, str]) -> set[str]:
    seen = {X, WAYLAND} & session.keys()
    return {NONE, *seen, *((EITHER,) if seen else ()), *((ONLY_X,) if seen == {X} else ())}


def _reason(need: Capability, lacking: Sequence[str], kinds: set[str]) -> str:
    if lacking:
        return f"no {' or '.join(lacking)} was found on the PATH of this server"
    if need in (Capability.NOTES_READ, Capability.NOTES_WRITE):
        return "the notes are those of Apple Notes, which is on macOS only"
    if need is Capability.WINDOWS and EITHER in kinds:
        return "no program can capture single windows on Wayland; use take_screenshot"
    return "there is no desktop: neither DISPLAY nor WAYLAND_DISPLAY is set for this server"
