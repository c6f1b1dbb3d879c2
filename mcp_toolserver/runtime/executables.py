"""Finds the programs that the server uses, without running any.

This module is imported before the broker forks, so its imports are few.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mcp_toolserver.runtime.desktop.executables import DesktopExecutables, find_desktop
from mcp_toolserver.runtime.git import hardening
from mcp_toolserver.runtime.sandbox.broker.policy import Helper
from mcp_toolserver.runtime.search import executable as search_executable
from mcp_toolserver.runtime.which import ENGINES, POWERSHELLS, find_program, program_folders


@dataclass(frozen=True, kw_only=True)
class HostExecutables:
    """Absolute paths of programs; None for missing ones."""

    ripgrep: str | None = None
    git: str | None = None
    desktop: DesktopExecutables = field(default_factory=DesktopExecutables)
    path: tuple[str, ...] = ()
    """Folders for later lookups."""
    powershell: str | None = None
    engine: str | None = None
    """The container engine."""

    @property
    def helpers(self) -> tuple[Helper, ...]:
        """The broker rules for helper programs."""
        git = () if self.git is None else (hardening.helper(self.git),)
        ripgrep = () if self.ripgrep is None else (search_executable.helper(self.ripgrep),)
        return (*ripgrep, *git)

    @property
    def missing(self) -> Mapping[str, str]:
        """Why a program is missing, by the name of the capability that it provides."""
        programs = (
            ("git", self.git, ("git",)),
            ("powershell", self.powershell, POWERSHELLS),
            ("containers", self.engine, ENGINES),
        )
        missing = {
            name: f"no {' or '.join(programs)} was found on the PATH of this server"
            for name, program, programs in programs
            if program is None
        }
        if self.ripgrep is None:
            missing["search"] = search_executable.RIPGREP_MISSING
        return {**missing, **self.desktop.missing}


def find_host_executables(environ: Mapping[str, str], roots: Sequence[str]) -> HostExecutables:
    """Find programs on the PATH of `environ`, and in the further folders of macOS; those run on workspace
    files must be outside `roots`.
    """
    path_entries = program_folders(environ.get("PATH", ""))
    return HostExecutables(
        ripgrep=search_executable.find_ripgrep(path_entries, roots),
        # A link cannot be mounted.
        git=(git := find_program(("git",), path_entries, roots)) and os.path.realpath(git),
        desktop=find_desktop(path_entries, roots, environ),
        path=path_entries,
        powershell=find_program(POWERSHELLS, path_entries, roots),
        engine=find_program(ENGINES, path_entries, roots),
    )
