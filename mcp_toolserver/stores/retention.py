"""Limits the size and age of what servers leave in the state folder: the quarantine and replaced contents.

The limits are enforced at server start. Entries newer than the start of the oldest running server stay, so
none disappears in the session that reported it.
"""

import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from mcp_toolserver.stores.disk import ENTRY_BYTES

QUARANTINE_FOLDER = "quarantine"


@dataclass(frozen=True, kw_only=True)
class RetentionLimits:
    """Limits for the entries of a folder."""

    total: int
    """Bytes."""
    seconds: float
    """Largest age of an entry."""


@dataclass(frozen=True, kw_only=True)
class Removed:
    """The removed entries, by name."""

    names: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()
    """Entries that could not be removed completely."""


def enforce_limits(folder: str, bounds: RetentionLimits, *, since: float, now: float) -> Removed:
    """Remove expired entries, then the oldest until the rest is small enough; keep those newer than `since`.

    The entries are the folders in `folder`, an absolute path. Times are in seconds since 1970.

    Raises:
        OSError: the folder cannot be listed.
    """
    try:
        with os.scandir(folder) as entries:
            found = sorted(
                (entry.stat(follow_symlinks=False).st_mtime, entry.name)
                for entry in entries
                if entry.is_dir(follow_symlinks=False)
            )
    except FileNotFoundError:
        return Removed()
    sizes = {name: size_of(f"{folder}/{name}") for _, name in found}
    total = sum(sizes.values())
    names: list[str] = []
    for moment, name in found:
        if moment >= since or (now - moment <= bounds.seconds and total <= bounds.total):
            continue
        total -= sizes[name]
        _remove(f"{folder}/{name}")
        names.append(name)
    stuck = tuple(name for name in names if os.path.lexists(f"{folder}/{name}"))
    return Removed(names=tuple(name for name in names if name not in stuck), stuck=stuck)


def size_of(path: str, onerror: Callable[[OSError], object] | None = None) -> int:
    """Return the total size of a folder or file. Links are not followed, and what is gone counts nothing;
    `onerror` gets the errors of folders that cannot be listed."""
    total = _entry_size(path)
    # To open a pipe would wait for somebody to write.
    if os.path.isdir(path) and not os.path.islink(path):
        for _, folders, files, descriptor in os.fwalk(path, onerror=onerror):
            total += sum(_entry_size(name, descriptor) for name in (*folders, *files))
    return total


def _entry_size(name: str, folder: int | None = None) -> int:
    with suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        return ENTRY_BYTES + (status.st_size if stat.S_ISREG(status.st_mode) else 0)
    return 0


def _remove(path: str) -> None:
    shutil.rmtree(path, onerror=_permit_and_retry)


def _permit_and_retry(act: Callable[..., object], path: str, _: object) -> None:
    """Restore permissions that a command removed, then retry."""
    try:
        for place in (os.path.dirname(path), path):
            if not os.path.islink(place):
                os.chmod(place, stat.S_IRWXU)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    except OSError:
        return
