"""Serving over HTTP: Streamable HTTP at `/mcp`, or the legacy pair `/sse` and `/messages/`.

The gateway requires a bearer token, also on loopback, because any web page and any other user's program can
reach a loopback port.
"""

import errno
import ipaddress
import socket
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial
from typing import Any

import anyio
from mcp.server.lowlevel import Server

from mcp_toolserver.errors import SettingsError
from mcp_toolserver.protocol.http import endpoints
from mcp_toolserver.protocol.http.connection import listen, listening, port_of
from mcp_toolserver.protocol.http.gate import Gateway, HttpOptions
from mcp_toolserver.protocol.http.members import Member, Members, NamedTokens, OneToken, many_tokens
from mcp_toolserver.protocol.http.request_checks import PORT, Route, Rules, authority
from mcp_toolserver.protocol.rate_limit import ConcurrencyLimiter

_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")


def check_bind(host: str, has_token_file: bool) -> None:
    """Allow a host that other machines can reach only with a token that the operator chose.

    Raises:
        SettingsError: there is no token file, and the host is not a loopback address, or is a name that
            stands for others as well, or for nothing.
    """
    if has_token_file:
        return
    try:
        found = socket.getaddrinfo(host or "0.0.0.0", None, type=socket.SOCK_STREAM)  # noqa: S104  # refused below
    except (OSError, UnicodeError):
        raise SettingsError(f"--host {host}: no such host. Use an address of this machine.") from None
    if not all(ipaddress.ip_address(str(entry[4][0])).is_loopback for entry in found):
        raise SettingsError(
            f"--host {host}: other machines can reach this address, so it needs --token-file FILE or "
            "--tokens FILE. Or serve this machine only, with --host 127.0.0.1."
        )


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
        return listen([(entry[0], entry[4]) for entry in found])
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
    endpoint = partial(endpoints.sse_endpoints if sse else endpoints.streamable_endpoint, options)
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
        addresses, port = [str(one.getsockname()[0]) for one in sockets], port_of(sockets)
        rules = rules_of(options, addresses, port, endpoints.SSE_ROUTES if sse else endpoints.ROUTES)
        gate = Gateway(members, rules, options)
        await stack.enter_async_context(listening(gate, sockets, options))
        path = endpoints.STREAM_PATH if sse else endpoints.PATH
        yield f"http://{authority(options.host, port)}{path}"


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another program listens there. Choose another --port; 0 takes any free one."
    return f"cannot be listened on ({error.strerror}). Choose another."


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
