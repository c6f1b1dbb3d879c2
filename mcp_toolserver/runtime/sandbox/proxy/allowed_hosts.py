"""The hosts that commands may reach: by name and port before the lookup, and by every address after it."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from mcp_toolserver.runtime.web.addresses import address_class
from mcp_toolserver.text.web.urls import UrlPattern, bracketed, url_pattern

USUAL_PORTS = (80, 443)
"""Those of a host that is listed without a port."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def parse_allowed_host(text: str) -> UrlPattern:
    """Parse `NAME`, `*.NAME` or an address, each optionally with `:PORT`. Raises: ValueError: it is none."""
    wrong = f"{text!r} is not a host. Give NAME, *.NAME or an address, each with or without :PORT"
    try:
        pattern = url_pattern(text)
    except ValueError as error:
        raise ValueError(f"{wrong} ({error})") from None
    if pattern.scheme or pattern.matches_target or pattern.host == "*" or text.startswith("domain:"):
        raise ValueError(wrong)
    return pattern


def spelled(host: str, port: int | None) -> str:
    """An entry of the list that allows `host` on `port`; None stands for the usual ports."""
    return bracketed(host) if port in (None, *USUAL_PORTS) else f"{bracketed(host)}:{port}"


def is_number(host: str) -> bool:
    """Whether `host`, in its one spelling, is an address."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class AllowedHosts:
    entries: tuple[UrlPattern, ...]

    @classmethod
    def of(cls, texts: Sequence[str]) -> "AllowedHosts":
        return cls(tuple(map(parse_allowed_host, texts)))

    @property
    def unlisted_loopback(self) -> tuple[str, ...]:
        """The names under which commands reach servers of their session."""
        return tuple(name for name in _LOOPBACK if all(entry.host != name for entry in self.entries))

    def allows(self, host: str, port: int) -> bool:
        """Whether `host`, in its one spelling, may be reached on `port`, if its addresses permit it."""
        return any(_allows_port(entry, port) and entry.covers(host) for entry in self.entries)

    def permits(self, address: str, host: str, port: int) -> bool:
        """Whether a connection to `host`, which is allowed, may go to `address`.

        A name may be that of a private address only if the list has the name itself: below `*.example.com`,
        others may decide on addresses. This machine is reached as `localhost` or by its address only.
        """
        found = ip_address(address)
        if is_number(host):
            return found == ip_address(host)
        if found.is_loopback:
            return host == "localhost" or host.endswith(".localhost")
        named = any(entry.host == host and _allows_port(entry, port) for entry in self.entries)
        return address_class(found) in ("public", *(("private",) if named else ()))


def _allows_port(entry: UrlPattern, port: int) -> bool:
    return port in USUAL_PORTS if entry.port is None else port == entry.port
