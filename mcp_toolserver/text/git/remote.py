"""Removes credentials from the URLs of remote repositories."""

import re
from collections.abc import Iterable

_ADDRESS = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<user>[^/?#]*@)?(?P<rest>[^?#]*)(?P<query>.*)", re.DOTALL
)
_BLANK = "[redacted]"
_SSH = "ssh://"


def blanked(address: str) -> str:
    """Remove password, token and query from `address`; the user of ssh, which is not secret, stays."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        return address
    user, query = found["user"] or "", found["query"]
    if user:
        name, separator, _ = user.removesuffix("@").partition(":")
        shown = f"{name}:{_BLANK}" if separator else name
        user = f"{shown if found['scheme'].lower() == _SSH else _BLANK}@"
    return f"{found['scheme']}{user}{found['rest']}{query[:1] and query[0] + _BLANK}"


def remotes(settings: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the names and addresses of the remotes in a configuration, in its order, without credentials."""
    found: dict[str, str] = {}
    for setting, value in settings:
        section, _, rest = setting.partition(".")
        name, _, last = rest.rpartition(".")
        if section == "remote" and last == "url":
            found.setdefault(name, blanked(value))
    return tuple(found.items())
