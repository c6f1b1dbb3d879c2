"""Decides which hosts may be contacted: by name before the lookup, and by every address after it.

A name is looked up once, all its addresses must be permitted, and the connection uses one of them. No second
lookup could return something else.
"""

import re
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

import anyio

from mcp_toolserver.errors import Denied, Unavailable
from mcp_toolserver.runtime.web.addresses import Address, address_class
from mcp_toolserver.text.web.urls import Url, UrlPattern, bracketed, url_pattern

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host; raises OSError if there are none."""

PORTS = frozenset({80, 443, 8080, 8443})
"""Standard ports of web servers; the operator can allow others by naming them."""

LOOKUPS_PER_MINUTE = 60
"""Lookups per minute: each lookup reveals its labels to the name server."""

_INTERNAL = re.compile(
    r"(?:.+\.)?(?:localhost|localdomain|local|internal|intranet|private|lan|home|corp|home\.arpa|onion)"
)

_ENTRY = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]+)(?::(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True, kw_only=True)
class PrivateHost:
    """An entry of the operator's list of non-public hosts that may be reached."""

    network: IPv4Network | IPv6Network | None
    host: UrlPattern | None
    port: int | None


def parse_private_host(text: str) -> PrivateHost:
    """Parse `host`, `*.host`, an address or a network (`10.0.0.0/8`), each optionally with `:port`.

    Raises:
        ValueError: the text has none of these forms.
    """
    wrong = f"{text!r} is not a host, an address or a network, with or without :port"
    found = _ENTRY.fullmatch(text)
    place = found["host"].strip("[]") if found else text
    port = int(found["port"]) if found and found["port"] else None
    if port is not None and not 0 < port < 65_536:
        raise ValueError(wrong)
    try:
        return PrivateHost(network=ip_network(place), host=None, port=port)
    except ValueError:
        if found is None or "/" in place:
            raise ValueError(wrong) from None
    return PrivateHost(network=None, host=url_pattern(place), port=port)


async def system_resolve(host: str, port: int) -> Sequence[str]:
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [address[4][0] for address in found]


@dataclass(frozen=True, kw_only=True)
class Guard:
    hosts: tuple[UrlPattern, ...] = ()
    """If not empty, only these hosts and those in `private` are permitted; otherwise every public host."""
    private: tuple[PrivateHost, ...] = ()
    resolve: Resolve = system_resolve
    lookups: deque[float] = field(default_factory=lambda: deque[float](maxlen=LOOKUPS_PER_MINUTE))

    def check(self, url: Url) -> None:
        """Check a URL by its text. Raises: Denied."""
        named = self.is_named(url.host, url.host, url.port)
        if self.hosts and not named and not any(pattern.matches(url) for pattern in self.hosts):
            raise Denied(f"{url.host} is not among the hosts that this server may fetch from (web-hosts).")
        if not named and _INTERNAL.fullmatch(url.host):
            raise Denied(_refusal(url.host, "is the name of a host that is not public"))
        if not self._allows_port(url):
            raise Denied(
                f"port {url.port} is not a permitted web port; the operator can allow it by naming "
                f"{bracketed(url.host)}:{url.port} in web-private."
            )

    async def addresses(self, host: str, port: int) -> tuple[str, ...]:
        """Return the addresses to which a connection to `host` may go. Raises: Denied, Unavailable."""
        literal = _parse_address(host)
        found = [literal] if literal else await self._resolve_host(host, port)
        for address in found:
            if not self._is_allowed(address, host, port):
                raise Denied(_refusal(host, "resolves to an address that is not public"))
        return tuple(map(str, found))

    def is_named(self, host: str, address: str, port: int) -> bool:
        """Whether the operator allowed this host or this address, which may be a name as well."""
        found = _parse_address(address)
        return self._allows_host(host, port) or (found is not None and self._allows_network(found, port))

    async def _resolve_host(self, host: str, port: int) -> list[Address]:
        now = time.monotonic()
        if len(self.lookups) == self.lookups.maxlen and now - self.lookups[0] < 60:
            raise Unavailable("Too many names were looked up within a minute; wait before the next fetch.")
        self.lookups.append(now)
        try:
            answers = await self.resolve(host, port)
            found = [ip_address(answer) for answer in dict.fromkeys(answers)]
        except (OSError, UnicodeError, ValueError) as error:
            if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
                raise Unavailable(
                    f"{host} could not be looked up: no name server answered. Probably this machine has no "
                    "network now."
                ) from None
            found = []
        if not found:
            raise Unavailable(f"{host} has no address; check the name.")
        return found

    def _is_allowed(self, address: Address, host: str, port: int) -> bool:
        kind = address_class(address)
        if kind == "public" or self._allows_network(address, port):
            return True
        return kind == "private" and self._allows_host(host, port)

    def _allows_port(self, url: Url) -> bool:
        if url.port in PORTS or any(pattern.port and pattern.matches(url) for pattern in self.hosts):
            return True
        with_port = replace(self, private=tuple(entry for entry in self.private if entry.port is not None))
        return with_port.is_named(url.host, url.host, url.port)

    def _allows_host(self, host: str, port: int) -> bool:
        return any(
            entry.host is not None and entry.host.covers(host) and entry.port in (None, port)
            for entry in self.private
        )

    def _allows_network(self, address: Address, port: int) -> bool:
        return any(
            entry.network is not None and address in entry.network and entry.port in (None, port)
            for entry in self.private
        )


def _parse_address(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _refusal(host: str, why: str) -> str:
    return (
        f"{host} {why}, and fetching from there is refused. Do not retry; "
        "the operator can name it in web-private."
    )
