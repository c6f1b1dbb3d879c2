"""Finds out whether this is WSL, and what Windows calls its folders."""

from collections.abc import Mapping
from pathlib import Path

from mcp_toolserver.text.windows_paths import WindowsPaths, drives_in


def find_windows_paths(environ: Mapping[str, str]) -> WindowsPaths | None:
    """What Windows calls the folders of this distribution; None outside WSL, which sets the variable."""
    distribution = environ.get("WSL_DISTRO_NAME")
    if not distribution:
        return None
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    return WindowsPaths(distribution=distribution, drives=drives_in(mounts))
