"""Translates paths of Windows into paths of the WSL distribution that the server runs in."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_DRIVE = re.compile(r"/?([A-Za-z]):(/.*)?", re.DOTALL)
_SHARE = re.compile(r"//(?:wsl\.localhost|wsl\$)/([^/]+)(/.*)?", re.DOTALL | re.IGNORECASE)
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, kw_only=True)
class WindowsPaths:
    """What Windows calls the folders of a WSL distribution."""

    distribution: str
    drives: Mapping[str, str]
    """Where each drive is mounted, by its letter in lower case."""

    def local(self, path: str) -> str | None:
        r"""The absolute path here of `C:\…`, `C:/…`, `/C:/…` or `\\wsl.localhost\NAME\…`.

        None for any other path, for a drive that is not mounted and for another distribution.
        """
        path = path.replace("\\", "/")
        if drive := _DRIVE.fullmatch(path):
            mounted = self.drives.get(drive[1].lower())
            return mounted and mounted + (drive[2] or "")
        share = _SHARE.fullmatch(path)
        if share is None or share[1].lower() != self.distribution.lower():
            return None
        return share[2] or "/"


def drives_in(mounts: str) -> dict[str, str]:
    """The mounted Windows drives in the text of `/proc/self/mounts`.

    WSL mounts each drive on a folder with its letter, `/mnt/c`. The source and the type differ between its
    versions (drvfs, 9p and virtiofs; microsoft/WSL, src/linux/init/drvfs.cpp).
    """
    places = (
        _ESCAPE.sub(lambda found: chr(int(found[1], 8)), line.split(" ")[1]) for line in mounts.splitlines()
    )
    letters = ((place.rpartition("/")[2], place) for place in places)
    return {letter: place for letter, place in letters if re.fullmatch("[a-z]", letter)}


def find_windows_paths(environ: Mapping[str, str]) -> WindowsPaths | None:
    """What Windows calls the folders of this distribution; None outside WSL, which sets the variable."""
    distribution = environ.get("WSL_DISTRO_NAME")
    if not distribution:
        return None
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape")
    return WindowsPaths(distribution=distribution, drives=drives_in(mounts))
