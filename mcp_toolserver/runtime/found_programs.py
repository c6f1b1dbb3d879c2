"""The server's own programs, found without running any.

Imported before the broker is forked, so it is light.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from mcp_toolserver.runtime import git_program, search_programs
from mcp_toolserver.runtime.desktop_programs import DesktopPrograms, find_desktop
from mcp_toolserver.runtime.host_programs import ENGINES, POWERSHELLS, find_program
from mcp_toolserver.runtime.sandbox.charter import Helper


@dataclass(frozen=True, kw_only=True)
class Found:
    """Absolute paths; None for what is not installed."""

    ripgrep: str | None = None
    git: str | None = None
    desktop: DesktopPrograms = field(default_factory=DesktopPrograms)
    path: tuple[str, ...] = ()
    """Where a program is looked for that is needed later."""
    powershell: str | None = None
    engine: str | None = None
    """What starts containers."""

    @property
    def helpers(self) -> tuple[Helper, ...]:
        """What the broker must let through."""
        git = () if self.git is None else (git_program.helper(self.git),)
        return (search_programs.helper(self.ripgrep), *git)


def find(path_entries: Sequence[str], roots: Sequence[str]) -> Found:
    """The programs in `path_entries`; what is run on what lies in `roots`, not from there."""
    return Found(
        ripgrep=search_programs.find_ripgrep(path_entries),
        git=git_program.find_git(path_entries, roots),
        desktop=find_desktop(path_entries, roots, os.environ),
        path=tuple(path_entries),
        powershell=find_program(POWERSHELLS, path_entries, roots),
        engine=find_program(ENGINES, path_entries, roots),
    )
