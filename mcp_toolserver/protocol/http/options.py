"""How to serve over HTTP, and under which names."""

import ipaddress
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mcp_toolserver.errors import SettingsError
from mcp_toolserver.protocol.http.request_checks import PORT, Route, Rules, authority
from mcp_toolserver.protocol.http.tokens import MIN_TOKEN
from mcp_toolserver.protocol.rate_limit import RequestLimits

_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")


async def _always_ready() -> Sequence[str]:
    return ()


@dataclass(frozen=True, kw_only=True)
class HttpOptions:
    host: str = "127.0.0.1"
    token: str | None = field(default=None, repr=False)
    """The only token; None with named tokens."""
    names: tuple[str, ...] = ()
    """More names of this server in the Host header. One with a port means exactly that, one without means
    the name at every port, because only the name protects from other web pages."""
    max_body: int = 4 * 1024 * 1024
    max_sessions: int = 256
    """Also bounds the open event streams."""
    limits: RequestLimits = field(default_factory=RequestLimits)
    max_connections: int = 512
    max_connections_per_peer: int = 384
    """Fewer than all, so that one address cannot shut out the others."""
    idle_seconds: float = 1800.0
    """Until a session without a request in progress is closed."""
    header_seconds: float = 10.0
    body_seconds: float = 10.0
    keep_alive_seconds: int = 30
    ending_seconds: float = 5.0
    """How long requests may take to end at shutdown; a cancelled call kills its processes in this time."""
    unready: Callable[[], Awaitable[Sequence[str]]] = _always_ready
    """Names what keeps the server from doing its work, for `/readyz`."""

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < MIN_TOKEN:
            raise SettingsError(f"The token for HTTP must have at least {MIN_TOKEN} characters.")


def rules_of(options: HttpOptions, addresses: Sequence[str], port: int, routes: Mapping[str, Route]) -> Rules:
    """The rules for a server that listens on `addresses`: those of its endpoints and of the health checks."""
    named = _extra_hosts(options, port)
    hosts = own_hosts(options, addresses, port)
    # A proxy may serve these names over TLS.
    origins = frozenset(f"{scheme}://{host}" for host in named for scheme in ("http", "https"))

    async def alive() -> tuple[int, bytes]:
        return 200, b"ok"

    async def ready() -> tuple[int, bytes]:
        missing = await options.unready()
        return (503, f"not ready: {', '.join(missing)}".encode()) if missing else (200, b"ready")

    methods = frozenset({"GET", "HEAD"})
    health = {
        "/healthz": Route(methods=methods, public=alive),
        "/readyz": Route(methods=methods, public=ready),
    }
    return Rules(
        hosts=hosts,
        names=frozenset(name.lower() for name in options.names if not PORT.search(name)),
        origins=origins | {f"http://{host}" for host in hosts},
        routes={**routes, **health},
    )


def own_hosts(options: HttpOptions, addresses: Sequence[str], port: int) -> frozenset[str]:
    """Every spelling of the Host header that means this server, in lower case."""
    bound = [ipaddress.ip_address(address) for address in addresses]
    local = any(address.is_loopback or address.is_unspecified for address in bound)
    names = (options.host.lower(), *(_LOOPBACK_NAMES if local else ()))
    hosts = {authority(name, port) for name in names}
    if port == 80:
        hosts |= {host.removesuffix(":80") for host in hosts}
    return frozenset(hosts | _extra_hosts(options, port))


def _extra_hosts(options: HttpOptions, port: int) -> frozenset[str]:
    names = [name.lower() for name in options.names]
    return frozenset((*names, *(f"{name}:{port}" for name in names if not PORT.search(name))))
