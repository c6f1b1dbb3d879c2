"""Serving over HTTP: Streamable HTTP at `/mcp`, or the legacy pair `/sse` and `/messages/`.

Everything is behind one gate that asks for a bearer token, also on loopback: any page in a browser and any
program of another user can reach a loopback port.
"""

import errno
import ipaddress
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp.server.lowlevel import Server

from mcp_toolserver.errors import SettingsError
from mcp_toolserver.protocol import sse as legacy
from mcp_toolserver.protocol import streamable
from mcp_toolserver.protocol.access import MIN_TOKEN
from mcp_toolserver.protocol.checks import Route, Rules, authority
from mcp_toolserver.protocol.connection import Patience
from mcp_toolserver.protocol.gate import Bounds, Gate
from mcp_toolserver.protocol.listener import Address, listen, listening, port_of
from mcp_toolserver.protocol.quota import Allowance, Quota

_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, kw_only=True)
class HttpOptions:
    """How to serve over HTTP."""

    host: str = "127.0.0.1"
    token: str = field(repr=False)
    names: tuple[str, ...] = ()
    """Further names of this server, as clients spell them in the Host header: `tools.example.org` behind a
    proxy on the usual port, `box.lan:8765` without one."""
    max_body: int = 4 * 1024 * 1024
    max_sessions: int = 256
    """Also bounds the open event streams."""
    allowance: Allowance = field(default_factory=Allowance)
    max_connections: int = 512
    max_connections_per_peer: int = 384
    """Fewer than all, so that one address cannot shut out the others."""
    idle_seconds: float = 1800.0
    """Until a session without a request in progress is forgotten."""
    header_seconds: float = 10.0
    body_seconds: float = 10.0
    keep_alive_seconds: int = 30

    def __post_init__(self) -> None:
        if len(self.token) < MIN_TOKEN:
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
    server: Server[Any],
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
        # Requests end before the sessions that they belong to. The other way round, a session would wait a
        # second for somebody to hear that its call was cancelled.
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
    server: Server[Any], options: HttpOptions, sockets: Sequence[socket.socket], sse: bool
) -> AsyncGenerator[str]:
    """Serve as long as the context is open; gives the address for clients."""
    quota = Quota(options.allowance)
    async with AsyncExitStack() as stack:
        for opened in sockets:
            stack.enter_context(closing(opened))
        endpoint = (
            legacy.sse_endpoints(
                server,
                max_body=options.max_body,
                quota=quota,
                idle_seconds=options.idle_seconds,
            )
            if sse
            else streamable.streamable_endpoint(
                server,
                max_body=options.max_body,
                max_sessions=options.max_sessions,
                idle_seconds=options.idle_seconds,
            )
        )
        rules = _rules(options, sockets, legacy.ROUTES if sse else streamable.ROUTES)
        gate = Gate(await stack.enter_async_context(endpoint), rules, _bounds(options), quota)
        await stack.enter_async_context(listening(gate, sockets, _patience(options)))
        path = legacy.STREAM_PATH if sse else streamable.PATH
        yield f"http://{authority(options.host, port_of(sockets))}{path}"


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another program listens there. Choose another --port; 0 takes any free one."
    return f"cannot be listened on ({error.strerror}). Choose another."


def _rules(options: HttpOptions, sockets: Sequence[socket.socket], routes: dict[str, Route]) -> Rules:
    hosts = own_hosts(options, [str(found.getsockname()[0]) for found in sockets], port_of(sockets))
    named = frozenset(f"{scheme}://{name.lower()}" for name in options.names for scheme in ("http", "https"))
    health = {"/healthz": Route(methods=frozenset({"GET", "HEAD"}), public=True)}
    return Rules(
        token=options.token.encode(),
        hosts=hosts,
        origins=named | {f"http://{host}" for host in hosts},
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
    return frozenset(hosts | {name.lower() for name in options.names})


def _bounds(options: HttpOptions) -> Bounds:
    return Bounds(
        max_body=options.max_body,
        body_seconds=options.body_seconds,
        streams=Allowance(requests=options.max_sessions, of_one=options.allowance.of_one),
    )


def _patience(options: HttpOptions) -> Patience:
    return Patience(
        max_connections=options.max_connections,
        max_per_peer=options.max_connections_per_peer,
        header_seconds=options.header_seconds,
        keep_alive_seconds=options.keep_alive_seconds,
    )
