"""Reads the operator's keys for search engines and models from private files."""

import os
import stat
from collections.abc import Sequence

from mcp_toolserver.errors import SettingsError

_MOST = 4_096


def key_files(entries: Sequence[str]) -> dict[str, str]:
    """Parse entries `engine=FILE` into a mapping of engine to file.

    Raises:
        SettingsError: an entry has another form.
    """
    found: dict[str, str] = {}
    for entry in entries:
        name, _, path = entry.partition("=")
        if not name or not path or name in found:
            raise SettingsError(
                f"web-search-keys: {entry!r} is not of the form engine=FILE, once for each engine"
            )
        found[name] = path
    return found


def read_key(path: str, setting: str = "web-search-keys") -> str:
    """Return the key in a file that `setting` names, stripped.

    Raises:
        SettingsError: the file is missing, readable by others, or holds no key; the message never quotes it.
    """
    try:
        # Without O_NONBLOCK, opening a FIFO would wait for a writer; Windows has neither.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise SettingsError(f"{setting}: {path} cannot be read ({error.strerror})") from None
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode) or (os.name == "posix" and mode & 0o077):
            raise SettingsError(f"{setting}: {path} must be a regular file that only its owner can read")
        key = os.read(descriptor, _MOST + 1).strip().decode("latin-1")
    finally:
        os.close(descriptor)
    return checked_key(key, f"{setting}: {path}")


def checked_key(key: str, place: str) -> str:
    """Return `key`, which `place` holds.

    Raises:
        SettingsError: it is empty, too long or malformed; the message never quotes it.
    """
    if not 0 < len(key) < _MOST or not all("!" <= character <= "~" for character in key):
        raise SettingsError(f"{place} must hold one key of printable ASCII, without spaces")
    return key
