"""Serving over HTTP: Streamable HTTP at `/mcp`, or the legacy pair `/sse` and `/messages/`.

The gateway requires a bearer token, also on loopback, because any web page and any other user's program can
reach a loopback port.
"""

import errno
import ipaddress
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from starlette.types import ASGIApp

from mcp_toolserver.errors import SettingsError
from mcp_toolserver.protocol.http import sse as legacy
from mcp_toolserver.protocol.http import streamable
from mcp_toolserver.protocol.http.connection import Timeouts
from mcp_toolserver.protocol.http.gate import Bounds, Gateway
from mcp_toolserver.protocol.http.listener import Address, listen, listening, port_of
from mcp_toolserver.protocol.http.members import Member, Members, NamedTokens, OneToken, many_tokens
from mcp_toolserver.protocol.http.request_checks import PORT, Route, Rules, authority
from mcp_toolserver.protocol.http.token import MIN_TOKEN
from mcp_toolserver.protocol.rate_limit import ConcurrencyLimiter, Limiter, RequestLimits

_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")


async def _always_ready() -> Sequence[str]:
    return ()


@dataclass(frozen=True, kw_only=True)
class HttpOptions:
    """How to serve over HTTP."""

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
    unready: Callable[[], Awaitable[Sequence[str]]] = _always_ready
    """Names what keeps the server from doing its work, for `/readyz`."""

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < MIN_TOKEN:
            raise SettingsError(f"The token for HTTP must have at least {MIN_TOKEN} characters.")


def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on `host`, on any free port when `port` is 0. A confined server can open none.

    Raises:
        SettingsError: the host or port cannot be listened on.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise SettingsError(f"--host {host}: no such host. Use an address of this machine.") from None
    try:
        return listen([Address(family=entry[0], name=entry[4]) for entry in found])
    except OSError as error:
        raise SettingsError(f"--host {host} --port {port}: {_reason(error)}") from None


async def serve_http(
    server: Server[Any] | NamedTokens,
    options: HttpOptions,
    sockets: Sequence[socket.socket],
    *,
    sse: bool,
    started: Callable[[str], None],
) -> None:
    """Serve on `sockets` until cancelled; then end every stream and cancel every call before returning.

    `started` gets the address for clients once connections are accepted.
    """
    cancelled = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_tell_when_cancelled, cancelled)
        # Requests end before their sessions. Otherwise a session would wait a second for its cancelled call
        # to be acknowledged.
        with anyio.CancelScope(shield=True):
            async with _open(server, options, sockets, sse) as address:
                started(address)
                await cancelled.wait()
        tasks.cancel_scope.cancel()


async def _tell_when_cancelled(cancelled: anyio.Event) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        cancelled.set()


@asynccontextmanager
async def _open(
    server: Server[Any] | NamedTokens,
    options: HttpOptions,
    sockets: Sequence[socket.socket],
    sse: bool,
) -> AsyncGenerator[str]:
    """Serve while the context is open; yields the address for clients."""
    limiter = ConcurrencyLimiter(options.limits)

    def endpoint(server: Server[Any], limiter: Limiter) -> AbstractAsyncContextManager[ASGIApp]:
        if sse:
            return legacy.sse_endpoints(
                server, max_body=options.max_body, limiter=limiter, idle_seconds=options.idle_seconds
            )
        return streamable.streamable_endpoint(
            server,
            max_body=options.max_body,
            max_sessions=options.max_sessions,
            idle_seconds=options.idle_seconds,
        )

    async with AsyncExitStack() as stack:
        for opened in sockets:
            stack.enter_context(closing(opened))
        if isinstance(server, NamedTokens):
            members: Members = await stack.enter_async_context(many_tokens(server, endpoint, limiter))
        else:
            # Without named tokens there is always a token.
            assert options.token is not None
            app = await stack.enter_async_context(endpoint(server, limiter))
            members = OneToken(token=options.token.encode(), member=Member(app=app, limiter=limiter))
        rules = _rules(options, sockets, legacy.ROUTES if sse else streamable.ROUTES)
        gate = Gateway(members, rules, _bounds(options))
        await stack.enter_async_context(listening(gate, sockets, _timeouts(options)))
        path = legacy.STREAM_PATH if sse else streamable.PATH
        yield f"http://{authority(options.host, port_of(sockets))}{path}"


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another program listens there. Choose another --port; 0 takes any free one."
    return f"cannot be listened on ({error.strerror}). Choose another."


def _rules(
    options: HttpOptions,
    sockets: Sequence[socket.socket],
    routes: dict[str, Route],
) -> Rules:
    port = port_of(sockets)
    named = _extra_hosts(options, port)
    hosts = own_hosts(options, [str(found.getsockname()[0]) for found in sockets], port)
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


def own_hosts(options: HttpOptions, addresses: list[str], port: int) -> frozenset[str]:
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


def _bounds(options: HttpOptions) -> Bounds:
    return Bounds(
        max_body=options.max_body,
        body_seconds=options.body_seconds,
        streams=RequestLimits(requests=options.max_sessions, of_one=options.limits.of_one),
    )


def _timeouts(options: HttpOptions) -> Timeouts:
    return Timeouts(
        max_connections=options.max_connections,
        max_per_peer=options.max_connections_per_peer,
        header_seconds=options.header_seconds,
        keep_alive_seconds=options.keep_alive_seconds,
    )
