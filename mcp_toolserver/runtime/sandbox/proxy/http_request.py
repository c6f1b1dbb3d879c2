"""Parses the head of a request to an HTTP proxy. What two programs could read in two ways is refused
(RFC 9112, 3.2 and 6.3; RFC 9110, 9.3.6)."""

import re
from dataclasses import dataclass

from mcp_toolserver.text.web.urls import bracketed, canonical_host

_LINE = re.compile(rb"([A-Z-]{1,32}) ([\x21-\x7e]+) HTTP/1\.[01]")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_ABSOLUTE = re.compile(r"http://(?P<place>[^/?#@]+)(?P<target>(?:/[^#]*)?)", re.IGNORECASE)
_PLACE = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+)(?::(?P<port>[0-9]{1,5}))?")

_OWN = frozenset(
    b"host connection content-length transfer-encoding keep-alive te trailer upgrade proxy-connection "
    b"proxy-authorization".split()
)
"""Fields that are for this connection, or that are written anew."""


_BAD = "400 Bad Request"


class Rejected(Exception):
    """The text is for the client; `status` is that of the answer, empty where TLS answers."""

    def __init__(self, why: str, status: str = "403 Forbidden") -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True, kw_only=True)
class ProxyRequest:
    host: str
    """In its one spelling."""
    port: int
    head: bytes = b""
    """What goes to the host first; empty for a tunnel."""
    body: int = 0
    """Bytes that follow."""


def parse_request(head: bytes) -> ProxyRequest:
    """Parse a head that ends with an empty line.

    Raises:
        Rejected: it is malformed, ambiguous, or not for a proxy.
    """
    line, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    if (found := _LINE.fullmatch(line)) is None:
        raise Rejected("the request line is malformed", _BAD)
    fields = [(match[1], match[2]) for text in lines if (match := _FIELD.fullmatch(text))]
    if len(fields) < len(lines):
        raise Rejected("a header field is malformed", _BAD)
    method, target = found[1], found[2].decode("ascii")
    if method == b"CONNECT":
        host, port = _place(target, None)
        return ProxyRequest(host=host, port=port)
    if (url := _ABSOLUTE.fullmatch(target)) is None:
        raise Rejected("a proxy is asked with CONNECT, or for http://HOST/…", _BAD)
    host, port = _place(url["place"], 80)
    length = _length(fields, (host, port))
    authority = bracketed(host) if port == 80 else f"{bracketed(host)}:{port}"
    sent = [
        b"%s %s HTTP/1.1" % (method, (url["target"] or "/").encode()),
        b"Host: " + authority.encode(),
        *(b"%s: %s" % one for one in fields if one[0].lower() not in _OWN),
        *(b"Content-Length: " + one for one in length),
        b"Connection: close",
    ]
    return ProxyRequest(host=host, port=port, head=b"\r\n".join((*sent, b"\r\n")), body=int(*length))


def _length(fields: list[tuple[bytes, bytes]], place: tuple[str, int]) -> list[bytes]:
    """The length of the body, if a field tells it."""
    values = {name: [value.strip() for of, value in fields if of.lower() == name] for name in _OWN}
    if values[b"transfer-encoding"]:
        raise Rejected("send the length of the body (Content-Length)", "411 Length Required")
    if any(_place(named.decode("ascii", "replace"), 80) != place for named in values[b"host"]):
        raise Rejected("the Host field names another host than the request line", _BAD)
    lengths = values[b"content-length"]
    if len(lengths) > 1 or not all(re.fullmatch(rb"[0-9]{1,18}", one) for one in lengths):
        raise Rejected("the length of the body is ambiguous", _BAD)
    return lengths


def _place(text: str, usual: int | None) -> tuple[str, int]:
    found = _PLACE.fullmatch(text)
    port = int(found["port"] or usual or 0) if found else 0
    if found is None or not 0 < port < 65_536:
        raise Rejected("the host and port are not of the form host:port", _BAD)
    try:
        return canonical_host(found["host"]), port
    except ValueError as error:
        raise Rejected(str(error), _BAD) from None
