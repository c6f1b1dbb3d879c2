"""Which hosts may be spoken to: decided on the name before it is looked up, and on every address after.

A name is looked up once, all of its addresses must pass, and the connection goes to one of those that were
checked. There is no second look-up that could answer otherwise.
"""

import re
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

import anyio

from mcp_toolserver.errors import Denied, Unavailable
from mcp_toolserver.runtime.web.addresses import Address, standing
from mcp_toolserver.text.urls import Url, UrlPattern, bracketed, url_pattern

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host; raises OSError when there are none."""

PORTS = frozenset({80, 443, 8080, 8443})
"""Where web servers listen; others are opened by naming them."""

LOOKUPS_PER_MINUTE = 60
"""Names in a minute: each label that is looked up tells its name server something."""

_INTERNAL = re.compile(
    r"(?:.+\.)?(?:localhost|localdomain|local|internal|intranet|private|lan|home|corp|home\.arpa|onion)"
)

_PRIVATE = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]+)(?::(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True, kw_only=True)
class Private:
    """One entry of the operator's list of places that may be reached although they are not public."""

    network: IPv4Network | IPv6Network | None
    host: UrlPattern | None
    port: int | None


def private(text: str) -> Private:
    """Parse `host`, `*.host`, an address or a network (`10.0.0.0/8`), each perhaps with `:port`.

    Raises:
        ValueError: it is none of these.
    """
    wrong = f"{text!r} is not a host, an address or a network, with or without :port"
    found = _PRIVATE.fullmatch(text)
    place = found["host"].strip("[]") if found else text
    port = int(found["port"]) if found and found["port"] else None
    if port is not None and not 0 < port < 65_536:
        raise ValueError(wrong)
    try:
        return Private(network=ip_network(place), host=None, port=port)
    except ValueError:
        if found is None or "/" in place:
            raise ValueError(wrong) from None
    return Private(network=None, host=url_pattern(place), port=port)


async def system_resolve(host: str, port: int) -> Sequence[str]:
    """Ask the system."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [address[4][0] for address in found]


@dataclass(frozen=True, kw_only=True)
class Guard:
    """Says no, or to which addresses a connection may go."""

    hosts: tuple[UrlPattern, ...] = ()
    """Only these, and what `private` names; empty is every public host."""
    private: tuple[Private, ...] = ()
    resolve: Resolve = system_resolve
    lookups: deque[float] = field(default_factory=lambda: deque[float](maxlen=LOOKUPS_PER_MINUTE))

    def check(self, url: Url) -> None:
        """Judge an address of the web by its words.

        Raises:
            Denied: the host is not listed, is a name for what is not public, or the port is not of the web.
        """
        named = self._names(url.host, url.port)
        if self.hosts and not named and not any(pattern.matches(url) for pattern in self.hosts):
            raise Denied(f"{url.host} is not among the hosts that this server may fetch from (web-hosts).")
        if not named and _INTERNAL.fullmatch(url.host):
            raise Denied(_refusal(url.host, "is a name for a place that is not public"))
        if not self._opens(url):
            raise Denied(
                f"port {url.port} is not one of web servers here; the operator can open it by naming "
                f"{bracketed(url.host)}:{url.port} in web-private."
            )

    async def addresses(self, host: str, port: int) -> tuple[str, ...]:
        """Where a connection to `host` may go.

        Raises:
            Denied: an address of the host is not public, and the operator did not name it.
            Unavailable: the host has no address, or too many names were looked up.
        """
        literal = _literal(host)
        found = [literal] if literal else await self._looked_up(host, port)
        for address in found:
            if not self._passes(address, host, port):
                raise Denied(_refusal(host, "leads to an address that is not public"))
        return tuple(map(str, found))

    def is_named(self, host: str, address: str, port: int) -> bool:
        """Whether the operator opened this host or this very address."""
        return self._opens_host(host, port) or self._opens_network(ip_address(address), port)

    async def _looked_up(self, host: str, port: int) -> list[Address]:
        now = time.monotonic()
        if len(self.lookups) == self.lookups.maxlen and now - self.lookups[0] < 60:
            raise Unavailable("Too many names were looked up within a minute; wait before the next fetch.")
        self.lookups.append(now)
        try:
            answers = await self.resolve(host, port)
            found = [ip_address(answer) for answer in dict.fromkeys(answers)]
        except (OSError, UnicodeError, ValueError):
            found = []
        if not found:
            raise Unavailable(f"{host} has no address; check the name.")
        return found

    def _passes(self, address: Address, host: str, port: int) -> bool:
        kind = standing(address)
        if kind == "public" or self._opens_network(address, port):
            return True
        return kind == "own" and self._opens_host(host, port)

    def _names(self, host: str, port: int) -> bool:
        literal = _literal(host)
        return self._opens_host(host, port) or (literal is not None and self._opens_network(literal, port))

    def _opens(self, url: Url) -> bool:
        if url.port in PORTS or any(pattern.port and pattern.matches(url) for pattern in self.hosts):
            return True
        literal = _literal(url.host)
        return any(
            entry.port == url.port
            and (
                (entry.host is not None and entry.host.covers(url.host))
                or (entry.network is not None and literal is not None and literal in entry.network)
            )
            for entry in self.private
        )

    def _opens_host(self, host: str, port: int) -> bool:
        return any(
            entry.host is not None and entry.host.covers(host) and entry.port in (None, port)
            for entry in self.private
        )

    def _opens_network(self, address: Address, port: int) -> bool:
        return any(
            entry.network is not None and address in entry.network and entry.port in (None, port)
            for entry in self.private
        )


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _refusal(host: str, why: str) -> str:
    return (
        f"{host} {why}, and fetching from there is refused. Do not retry; "
        "the operator can name it in web-private."
    )
