"""Parses and checks the operator's web settings, and reads keys for search engines and models from private
files. Everything here raises SettingsError where a setting cannot be used."""

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from mcp_toolserver.errors import SettingsError
from mcp_toolserver.runtime.web.guard import PrivateHost, parse_private_host
from mcp_toolserver.text.web.urls import Url, UrlPattern, parse_url, url_pattern

T = TypeVar("T")

_BASES: Mapping[str, str | None] = {
    "brave": "https://api.search.brave.com",
    "tavily": "https://api.tavily.com",
    "searxng": None,
    "duckduckgo": "https://html.duckduckgo.com",
}
"""Supported search engines and their addresses; SearXNG is self-hosted."""

_KEYED = frozenset({"brave", "tavily"})


@dataclass(frozen=True, kw_only=True)
class Provider:
    engine: str
    base: Url
    key: str = field(default="", repr=False)
    is_named: bool = False
    """Whether the operator set the address, which permits it even if it is not public."""
    seconds: float = 15.0
    """That a search may take."""


USUAL_PROVIDER = Provider(engine="duckduckgo", base=parse_url("https://html.duckduckgo.com"))


@dataclass(frozen=True, kw_only=True)
class WebOptions:
    """Constant for the life of the process."""

    hosts: tuple[UrlPattern, ...] = ()
    private: tuple[PrivateHost, ...] = ()
    robots: bool = True
    providers: tuple[Provider, ...] = (USUAL_PROVIDER,)
    searches: int = 25
    """Searches of one session in a day."""


def host_patterns(entries: Sequence[str]) -> tuple[UrlPattern, ...]:
    """Parse `web-hosts`."""
    found = tuple(_read("web-hosts", url_pattern, entry) for entry in entries)
    for entry, pattern in zip(entries, found, strict=True):
        if pattern.matches_target is not None:
            raise SettingsError(f"web-hosts: {entry!r} has a path; name hosts here, and paths in rules")
    return found


def private_places(entries: Sequence[str]) -> tuple[PrivateHost, ...]:
    """Parse `web-private`."""
    return tuple(_read("web-private", parse_private_host, entry) for entry in entries)


def providers(entries: Sequence[str], keys: Mapping[str, str]) -> tuple[Provider, ...]:
    """Parse `web-search`: engines as `name` or `name=address`; `keys` has the secret of each by name."""
    for name in keys:
        if name not in _BASES:
            raise SettingsError(f"web-search-keys: {name!r} is none of {', '.join(_BASES)}")
    return tuple(_provider(entry, keys) for entry in entries) or (USUAL_PROVIDER,)


def _provider(entry: str, keys: Mapping[str, str]) -> Provider:
    name, _, address = entry.partition("=")
    if name not in _BASES:
        raise SettingsError(f"web-search: {name!r} is none of {', '.join(_BASES)}")
    base = address or _BASES[name]
    if base is None:
        raise SettingsError(f"web-search: {name} needs its address, {name}=https://...")
    if name in _KEYED and name not in keys:
        raise SettingsError(f"web-search: {name} needs a key; name its file in web-search-keys, {name}=FILE")
    url = _read("web-search", parse_url, base)
    return Provider(engine=name, base=url, key=keys.get(name, ""), is_named=True)


def _read(setting: str, read: Callable[[str], T], entry: str) -> T:
    try:
        return read(entry)
    except ValueError as error:
        raise SettingsError(f"{setting}: {error}") from None


# --- keys ------------------------------------------------------------------------------------------------

_MOST_KEY = 4_096


def key_files(entries: Sequence[str]) -> dict[str, str]:
    """Parse entries `engine=FILE` into a mapping of engine to file."""
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
    """Return the key in a file that `setting` names, stripped. No error message quotes it."""
    try:
        # Without O_NONBLOCK, opening a FIFO would wait for a writer; Windows has neither.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise SettingsError(f"{setting}: {path} cannot be read ({error.strerror})") from None
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode) or (os.name == "posix" and mode & 0o077):
            raise SettingsError(f"{setting}: {path} must be a regular file that only its owner can read")
        key = os.read(descriptor, _MOST_KEY + 1).strip().decode("latin-1")
    finally:
        os.close(descriptor)
    return checked_key(key, f"{setting}: {path}")


def checked_key(key: str, place: str) -> str:
    """Return `key`, which `place` holds, if it is one. No error message quotes it."""
    if not 0 < len(key) < _MOST_KEY or not all("!" <= character <= "~" for character in key):
        raise SettingsError(f"{place} must hold one key of printable ASCII, without spaces")
    return key
