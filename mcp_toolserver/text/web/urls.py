"""Web addresses in the one spelling that rules match, and patterns that match them part by part.

What another program might read as a different address is refused, not mended: a name in front of `@`, a
backslash, a number that is an address in disguise. What only spells the same thing differently is respelt.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address

from mcp_toolserver.text.lines.escape_invisible import visible
from mcp_toolserver.text.search.glob import wildcard

MAX_LENGTH = 8_192
MAX_HOST, MAX_LABEL = 253, 63

USUAL_PORTS = {"http": 80, "https": 443}

_FORM = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<place>[^/?#]*)(?P<target>[^#]*))?.*", re.DOTALL
)
_PLACE = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]*)(?::(?P<port>[0-9]*))?")
_UNSENDABLE = re.compile(r"[\x00-\x20\x7f\\]")
_FOREIGN_DOTS = frozenset("\u3002\uff0e\uff61")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})|([^A-Za-z0-9._~!$&'()*+,;=:@/?\[\]-])")
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")


@dataclass(frozen=True, kw_only=True)
class Url:
    """An address of the web, in parts."""

    scheme: str
    """`http` or `https`."""
    host: str
    """In lower case and ASCII; an IPv6 address without brackets."""
    port: int
    target: str
    """Path and query; starts with "/"."""

    def __str__(self) -> str:
        return f"{self.origin}{self.target}"

    @property
    def origin(self) -> str:
        """Scheme, host and port; the port only where it is not the usual one."""
        port = "" if self.port == USUAL_PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{bracketed(self.host)}{port}"

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]


def bracketed(host: str) -> str:
    """Return a host as it is written in an address: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def is_loopback(host: str) -> bool:
    """Whether a host, in its one spelling, is this machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def canonical_url(text: str) -> str:
    """Return the canonical spelling of an address. Raises: as `parse_url`."""
    return str(parse_url(text))


def parse_url(text: str) -> Url:
    """Take an address apart. Raises: ValueError: it is none of the web, or could be read in two ways."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"an address may have at most {MAX_LENGTH:,} characters; use a shorter one")
    if _UNSENDABLE.search(text) or visible(text) != text:
        raise ValueError(
            "an address cannot hold white space, a backslash or invisible characters; percent-encode them"
        )
    found = _FORM.fullmatch(text)
    scheme = found["scheme"].lower() if found else ""
    if found is None or scheme not in USUAL_PORTS:
        raise ValueError("only http:// and https:// addresses can be fetched")
    place = found["place"] or ""
    if "@" in place:
        raise ValueError("an address cannot hold a user name or a password; leave them out")
    parts = _PLACE.fullmatch(place)
    if parts is None or parts["port"] == "":
        raise ValueError("the host and port of the address are not of the form host:port")
    return Url(
        scheme=scheme,
        host=canonical_host(parts["host"]),
        port=_port(parts["port"]) if parts["port"] else USUAL_PORTS[scheme],
        target=_target(found["target"]),
    )


def joined(base: Url, reference: str) -> Url:
    """Resolve `reference`, from a page or a redirect, against `base`. Raises: as `parse_url`."""
    reference = reference.strip()
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", reference):
        return parse_url(reference)
    if reference.startswith("//"):
        return parse_url(f"{base.scheme}:{reference}")
    if reference.startswith("/"):
        return parse_url(f"{base.origin}{reference}")
    if reference.startswith("?"):
        return parse_url(f"{base.origin}{base.path}{reference}")
    if reference.startswith("#") or not reference:
        return parse_url(f"{base}{reference}")
    return parse_url(f"{base.origin}{_without_dots(base.path.rpartition('/')[0] + '/' + reference)}")


def _port(text: str) -> int:
    port = int(text) if len(text) <= 5 else 0
    if not 0 < port < 65_536:
        raise ValueError(f"{text[:12]} is not a port; it is a number from 1 to 65535")
    return port


# --- hosts -----------------------------------------------------------------------------------------------


def canonical_host(host: str) -> str:
    """Return the canonical spelling of a host name or an IP address.

    Raises:
        ValueError: it is neither, or an IP address in a spelling that programs read differently.
    """
    if host.startswith("["):
        if "%" in host:
            raise ValueError("an address cannot name a network interface; leave out %zone")
        return _number(IPv6Address, host[1:-1], "the host in brackets is not an IPv6 address")
    name = _ascii(host).lower().removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        wrong = "the host of the address is a number but no IPv4 address; write four decimal numbers"
        return _number(IPv4Address, name, wrong)
    if len(name) > MAX_HOST or any(len(label) > MAX_LABEL for label in labels):
        raise ValueError(
            f"the name of the host is too long: at most {MAX_HOST} characters, {MAX_LABEL} between dots"
        )
    if not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("the host of the address is not a valid name")
    return name


def _ascii(host: str) -> str:
    if host.isascii():
        return host
    if _FOREIGN_DOTS & set(host):
        raise ValueError("the name of the host holds a character that only looks like a dot; write `.`")
    # Few addresses need it.
    import idna

    try:
        return idna.encode(host).decode("ascii")
    except idna.IDNAError:
        raise ValueError("the host of the address is not a valid international name") from None


def _number(form: Callable[[str], object], text: str, wrong: str) -> str:
    try:
        return str(form(text))
    except AddressValueError:
        raise ValueError(wrong) from None


# --- paths -----------------------------------------------------------------------------------------------


def _target(text: str) -> str:
    escaped = _ESCAPE.sub(_escaped, text)
    path, mark, query = escaped.partition("?")
    return f"{_without_dots(path or '/')}{mark}{query}"


def _escaped(found: re.Match[str]) -> str:
    """Escape what needs an escape, in capitals; decode other escapes."""
    if found[1]:
        character = chr(int(found[1], 16))
        return character if _UNRESERVED.fullmatch(character) else found[0].upper()
    return "".join(f"%{byte:02X}" for byte in found[2].encode())


def _without_dots(path: str) -> str:
    """Remove `.` and `..`; a path cannot climb above its host."""
    if "/." not in path:
        return path
    kept: list[str] = []
    parts = path.split("/")[1:]
    for part in parts:
        if part == "..":
            del kept[-1:]
        elif part != ".":
            kept.append(part)
    if parts[-1] in (".", ".."):
        kept.append("")
    return "/" + "/".join(kept)


# --- patterns --------------------------------------------------------------------------------------------

_PATTERN = re.compile(
    r"(?:(?P<scheme>https?)://)?(?P<host>\*|(?:\*\.)?[^*/?#:\[\]@]+|\[[^\]]*\])(?::(?P<port>[0-9]+))?(?P<target>/.*)?",
    re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class UrlPattern:
    """A host, and perhaps a scheme, a port and a path, of which each must match by itself."""

    scheme: str | None
    host: str
    """A host; `*.` before a name stands for one or more names, and `*` alone for every host."""
    port: int | None
    matches_target: Callable[[str], bool] | None

    def matches(self, url: Url) -> bool:
        """Whether `url` is meant. A path without a query is matched whatever the query."""
        return (
            self.scheme in (None, url.scheme)
            and self.port in (None, url.port)
            and self.covers(url.host)
            and (
                self.matches_target is None
                or self.matches_target(url.target)
                or self.matches_target(url.path)
            )
        )

    def covers(self, host: str) -> bool:
        """Whether a host, in its one spelling, is meant."""
        if self.host.startswith("*."):
            return host.endswith(self.host[1:])
        return self.host in ("*", host)


def url_pattern(text: str) -> UrlPattern:
    """Parse `[scheme://]host[:port][/path]`, where `*` stands for any text in the path; or `domain:host`.

    Raises:
        ValueError: it is not of that form.
    """
    found = _PATTERN.fullmatch(text.removeprefix("domain:"))
    if found is None:
        raise ValueError(
            f"{text!r} is not of the form host, host:port or https://host/path; the host may start with `*.`"
        )
    host, target = found["host"], found["target"]
    if host != "*":
        wild = "*." if host.startswith("*.") else ""
        host = wild + canonical_host(host.removeprefix("*."))
    return UrlPattern(
        scheme=found["scheme"],
        host=host,
        port=_port(found["port"]) if found["port"] else None,
        matches_target=wildcard(_target(target)) if target else None,
    )


def url_matcher(text: str) -> Callable[[str], bool]:
    """Compile a pattern into a test of canonical addresses; other text matches nothing.

    Raises: as `url_pattern`.
    """
    pattern = url_pattern(text)

    def matches(subject: str) -> bool:
        try:
            return pattern.matches(parse_url(subject))
        except ValueError:
            return False

    return matches
