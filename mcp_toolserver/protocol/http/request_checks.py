"""Checks the head of a request; pure.

The first check that objects decides. Nothing here reads a body, and no text repeats what the client sent but
a host: a token in the wrong place stays out of answers and logs.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from mcp_toolserver.protocol.refusals import CLOSE, INVALID_CHALLENGE, Refusal

PORT = re.compile(r":[0-9]+$")
"""The port in a Host header."""

_HOST = re.compile(r"[a-z0-9._-]{1,253}(:[0-9]{1,5})?|\[[0-9a-f:.]{2,45}\](:[0-9]{1,5})?")
"""A host that an answer may repeat."""


@dataclass(frozen=True, kw_only=True)
class RequestHead:
    method: str
    path: str
    """Percent-decoded."""
    query: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Names in lower case."""
    local: str = ""
    """The address and port that the client connected to, as in a Host header."""

    def values(self, name: bytes) -> list[bytes]:
        """Every value of a header, in the order sent."""
        return [value for key, value in self.headers if key == name]


@dataclass(frozen=True, kw_only=True)
class Route:
    """The requests that one path accepts."""

    methods: frozenset[str]
    query: re.Pattern[bytes] = re.compile(rb"")
    """Pattern of the whole query string."""
    public: Callable[[], Awaitable[tuple[int, bytes]]] | None = None
    """Gives status and text of the answer, where no token is needed."""
    awaits: bool = False
    """Whether a POST of a call stays open until the call is answered."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The names of the server and the routes that are accepted."""

    hosts: frozenset[str]
    """Accepted Host headers, in lower case."""
    names: frozenset[str] = frozenset()
    """Names that are accepted with any port, in lower case."""
    origins: frozenset[str]
    routes: Mapping[str, Route]


def authority(host: str, port: int) -> str:
    """A host and port as in a Host header."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_request(head: RequestHead, rules: Rules) -> Refusal | None:
    """The first refusal of a request, if any. The later checks rely on the earlier ones."""
    return next(chain(_server(head, rules), _page(head, rules), _route(head, rules)), None)


def _server(head: RequestHead, rules: Rules) -> Iterator[Refusal]:
    # With both headers, proxies can disagree about the end of the body: request smuggling.
    if head.values(b"transfer-encoding") and head.values(b"content-length"):
        text = "Send Content-Length or Transfer-Encoding, not both in one request."
        yield Refusal(status=400, headers=CLOSE, text=text)
    if not head.path.startswith("/"):
        text = "The request line must name a path, not a whole address."
        yield Refusal(status=400, headers=CLOSE, text=text)
    hosts = [_lower(value) for value in head.values(b"host")]
    host = hosts[0] if len(hosts) == 1 else ""
    if not host or not (host in rules.hosts or host == head.local or PORT.sub("", host) in rules.names):
        shown = host if _HOST.fullmatch(host) else "NAME"
        yield Refusal(
            status=421,
            text=f"The Host header ({shown}) is not a name of this server. Use the address that it printed "
            f"at start, or let the operator start it with --allowed-host {shown}.",
        )


def _page(head: RequestHead, rules: Rules) -> Iterator[Refusal]:
    allowed = rules.origins | {f"http://{head.local}"}
    if (host := _lower(head.values(b"host")[0])) not in rules.hosts:
        allowed |= {f"http://{host}", f"https://{host}"}
    if not all(_lower(value) in allowed for value in head.values(b"origin")):
        yield Refusal(status=403, text="Requests from web pages of other origins are not served.")
    if not all(_lower(value) in ("same-origin", "none") for value in head.values(b"sec-fetch-site")):
        yield Refusal(status=403, text="Requests from web pages of other sites are not served.")


def _route(head: RequestHead, rules: Rules) -> Iterator[Refusal]:
    if (route := rules.routes.get(head.path)) is None:
        yield Refusal(status=404, text=f"Nothing is here. This server answers at {_listed(rules.routes)}.")
        return
    if head.method not in route.methods:
        allow = ((b"allow", ", ".join(sorted(route.methods)).encode()),)
        yield Refusal(status=405, headers=allow, text=f"This path takes {_listed(route.methods)}.")
    # A server may ignore other upgrades (h2c).
    if any(b"websocket" in value.lower() for value in head.values(b"upgrade")):
        text = "This server does not speak WebSocket. Use plain HTTP."
        yield Refusal(status=400, headers=CLOSE, text=text)
    if not route.query.fullmatch(head.query):
        text = "This path takes no such query. A token belongs in the header Authorization: Bearer TOKEN."
        yield Refusal(status=400, text=text)


def bearer_token(head: RequestHead) -> bytes | Refusal:
    given = head.values(b"authorization")
    if not given:
        return replace(INVALID_TOKEN, headers=((b"www-authenticate", b'Bearer realm="mcp-toolserver"'),))
    scheme, _, token = given[0].partition(b" ")
    if len(given) == 1 and scheme.lower() == b"bearer":
        return token.strip()
    return INVALID_TOKEN


INVALID_TOKEN = Refusal(
    status=401,
    headers=(INVALID_CHALLENGE,),
    text="Send the server's token in the header Authorization: Bearer TOKEN.",
)


def _lower(value: bytes) -> str:
    return value.decode("latin-1").lower()


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
