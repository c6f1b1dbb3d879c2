"""Parses the head of a request to an HTTP proxy. What two programs could read in two ways is refused
(RFC 9112, 3.2 and 6.3; RFC 9110, 9.3.6)."""

import re
from dataclasses import dataclass

from mcp_toolserver.text.web.urls import bracketed, canonical_host

_LINE = re.compile(rb"([A-Z-]{1,32}) ([\x21-\x7e]+) HTTP/1\.[01]")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
_ABSOLUTE = re.compile(r"http://(?P<place>[^/?#@]+)(?P<target>(?:/[^#]*)?)", re.IGNORECASE)
_PLACE = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::(?P<port>[0-9]{1,5}))?")

_OWN = {b"host", b"connection", b"content-length", b"keep-alive", b"te", b"trailer", b"upgrade"}
"""Fields that are for this connection, or that are written anew."""


class Rejected(Exception):
    """The text is for the client; `status` is that of the answer, empty where TLS answers."""

    def __init__(self, why: str, status: str = "400 Bad Request") -> None:
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
        raise Rejected("the request line is malformed")
    fields = [(match[1], match[2]) for text in lines if (match := _FIELD.fullmatch(text))]
    if len(fields) < len(lines):
        raise Rejected("a header field is malformed")
    method, target = found[1], found[2].decode("ascii")
    if method == b"CONNECT":
        host, port = _place(target, None)
        return ProxyRequest(host=host, port=port)
    if (url := _ABSOLUTE.fullmatch(target)) is None:
        raise Rejected("a proxy is asked with CONNECT, or for http://HOST/…")
    host, port = _place(url["place"], 80)
    kept = [
        b": ".join(one) for one in fields if one[0].lower() not in _OWN and b"proxy-" not in one[0].lower()
    ]
    length = _length(fields, host, port)
    authority = bracketed(host) if port == 80 else f"{bracketed(host)}:{port}"
    sent = [
        b"%s %s HTTP/1.1" % (method, (url["target"] or "/").encode()),
        b"Host: " + authority.encode(),
        *kept,
        *([] if length is None else [b"Content-Length: %d" % length]),
        b"Connection: close",
    ]
    return ProxyRequest(host=host, port=port, head=b"\r\n".join((*sent, b"\r\n")), body=length or 0)


def _length(fields: list[tuple[bytes, bytes]], host: str, port: int) -> int | None:
    """The bytes of the body; None where no field tells."""
    values: dict[bytes, list[bytes]] = {}
    for name, value in fields:
        values.setdefault(name.lower(), []).append(value.rstrip(b" \t"))
    if b"transfer-encoding" in values:
        raise Rejected("send the length of the body (Content-Length)", "411 Length Required")
    for named in values.get(b"host", []):
        if _place(named.decode("ascii", "replace"), 80) != (host, port):
            raise Rejected("the Host field names another host than the request line")
    lengths = values.get(b"content-length", [])
    if len(lengths) > 1 or not all(re.fullmatch(rb"[0-9]{1,18}", one) for one in lengths):
        raise Rejected("the length of the body is ambiguous")
    return int(lengths[0]) if lengths else None


def _place(text: str, usual: int | None) -> tuple[str, int]:
    found = _PLACE.fullmatch(text)
    port = int(found["port"] or usual or 0) if found else 0
    if found is None or not 0 < port < 65_536:
        raise Rejected("the host and port are not of the form host:port")
    try:
        return canonical_host(found["host"]), port
    except ValueError as error:
        raise Rejected(str(error)) from None
