"""Says which addresses are public. The tables are ours because the standard library's differ between versions
and count some addresses as global that embed others.
"""

from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Literal

Address = IPv4Address | IPv6Address

AddressClass = Literal["public", "private", "reserved"]
"""The operator can allow a `private` address by the name of a host, a `reserved` one only by the address."""

_PRIVATE = tuple(
    map(
        ip_network,
        (
            *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),
            "100.64.0.0/10",  # between a provider and its customers; also overlay networks
            "127.0.0.0/8",
            "::1/128",
            "fc00::/7",
        ),
    )
)
_RESERVED = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",  # this host
            "169.254.0.0/16",  # link-local, where clouds serve credentials
            "168.63.129.16/32",  # a cloud's service for its machines, on a public address
            *("192.0.0.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.175.48.0/24"),
            *("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"),  # documentation
            "192.88.99.0/24",  # relays of 6to4
            "198.18.0.0/15",  # benchmarks
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, broadcast
            "2001::/23",  # Teredo, ORCHID and other special purposes
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4: holds an IPv4 address
            "2620:4f:8000::/48",
            "3fff::/20",  # documentation
        ),
    )
)
_GLOBAL_6 = ip_network("2000::/3")
"""All other IPv6 addresses are local, multicast, reserved or embed an IPv4 address."""

_ISATAP = frozenset({0x0000_5EFE, 0x0200_5EFE})
"""Middle bits of an address that embeds an IPv4 address in its last 32 bits."""


def address_class(address: Address) -> AddressClass:
    if any(address in network for network in _PRIVATE):
        return "private"
    if any(address in network for network in _RESERVED):
        return "reserved"
    if isinstance(address, IPv4Address):
        return "public"
    holds_another = (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP
    return "public" if address in _GLOBAL_6 and not holds_another else "reserved"
