"""Serving over HTTP: Streamable HTTP at `/mcp`, or the legacy pair `/sse` and `/messages/`.

The gateway requires a bearer token, also on loopback, because any web page and any other user's program can
reach a loopback port.

A connection is uvicorn's HTTP/1.1 protocol plus a timeout for every wait. The server closes a connection that
does not send a whole request head in time, that keeps sending a body after the answer, or that pipelines a
second request. It reads while a call runs, because that is how it notices that the client disconnects.
Connections over the limit get a 503 and are closed.
"""

import asyncio
import errno
import ipaddress
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial
from typing import Any

import anyio
import h11
import uvicorn
from mcp.server.lowlevel import Server
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from mcp_toolserver.errors import SettingsError
from mcp_toolserver.protocol.http import endpoints
from mcp_toolserver.protocol.http.gate import Gateway, HttpOptions
from mcp_toolserver.protocol.http.members import Member, Members, NamedTokens, OneToken, many_tokens
from mcp_toolserver.protocol.http.request_checks import PORT, Route, Rules, authority
from mcp_toolserver.protocol.rate_limit import ConcurrencyLimiter
from mcp_toolserver.protocol.refusals import CLOSE, SHIELDS

BACKLOG = 512
"""Maximum connections that wait to be accepted."""

MAX_HEAD = 16 * 1024
"""Maximum bytes of a request's head."""

_ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)

LEFTOVER_SECONDS = 2.0
"""How long the rest of a body is discarded after its request was refused. After an immediate close many
clients would not read the answer."""

_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")


def check_bind(host: str, has_token_file: bool) -> None:
    """Allow a host that other machines can reach only with a token that the operator chose.

    Raises:
        SettingsError: without one, the host is no loopback address, or a name that stands for others as well.
    """
    if has_token_file:
        return
    found = _resolved(host or "0.0.0.0")  # noqa: S104  # refused below
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
    found = _resolved(host, port)
    try:
        return listen([(entry[0], entry[4]) for entry in found])
    except OSError as error:
        why = (
            "another program listens there. Choose another --port; 0 takes any free one."
            if error.errno == errno.EADDRINUSE
            else f"cannot be listened on ({error.strerror}). Choose another."
        )
        raise SettingsError(f"--host {host} --port {port}: {why}") from None


def _resolved(host: str, port: int | None = None) -> list[tuple[Any, ...]]:
    """What `socket.getaddrinfo` finds. Raises: SettingsError: nothing."""
    try:
        return [*socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):
        raise SettingsError(f"--host {host}: no such host. Use an address of this machine.") from None


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


def rules_of(options: HttpOptions, addresses: Sequence[str], port: int, routes: Mapping[str, Route]) -> Rules:
    """The rules for a server that listens on `addresses`: those of its endpoints and of the health checks."""
    names = frozenset(name.lower() for name in options.names)
    of_any_port = frozenset(name for name in names if not PORT.search(name))
    hosts = own_hosts(options, addresses, port) | (names - of_any_port)
    # A proxy may serve these names over TLS.
    named = (*names, *(f"{name}:{port}" for name in of_any_port))
    origins = frozenset(f"{scheme}://{host}" for host in named for scheme in ("http", "https"))

    async def alive() -> tuple[int, bytes]:
        return 200, b"ok"

    async def ready() -> tuple[int, bytes]:
        missing = await options.unready() if options.unready else ()
        return (503, f"not ready: {', '.join(missing)}".encode()) if missing else (200, b"ready")

    methods = frozenset({"GET", "HEAD"})
    health = {
        "/healthz": Route(methods=methods, public=alive),
        "/readyz": Route(methods=methods, public=ready),
    }
    return Rules(
        hosts=hosts,
        names=of_any_port,
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
    return frozenset(hosts)


class ConnectionLimiter:
    """Limits connections, in all and by peer address.

    At the limit, a new connection replaces one without a request in progress. Otherwise a client that opens
    connections and sends nothing would lock out every other client of its address, and on loopback all
    clients share one address.
    """

    def __init__(self, options: HttpOptions) -> None:
        self._options = options
        self._open: dict[Connection, str] = {}
        """The peer address of each connection; the oldest connection first."""
        self._peers: Counter[str] = Counter()

    def admit(self, connection: "Connection", peer: str) -> bool:
        """Count a connection, replacing an idle one at the limit; False if none is idle."""
        if not self._has_room_for(peer) or len(self._open) >= self._options.max_connections:
            replaced = self._replaceable(peer)
            if replaced is None:
                return False
            self.remove(replaced)
            replaced.transport.abort()
        self._open[connection] = peer
        self._peers[peer] += 1
        return True

    def remove(self, connection: "Connection") -> None:
        """Stop counting a connection, if it was admitted."""
        peer = self._open.pop(connection, None)
        if peer is None:
            return
        self._peers[peer] -= 1
        if not self._peers[peer]:
            del self._peers[peer]

    def _has_room_for(self, peer: str) -> bool:
        return self._peers[peer] < self._options.max_connections_per_peer

    def _replaceable(self, peer: str) -> "Connection | None":
        """The connection to close for a new one of `peer`: of the address with the most, the oldest that
        never sent a whole request head; else the oldest that waits for its next request."""
        idle = [one for one in self._open if one.is_idle]
        if self._has_room_for(peer):
            most = max((self._peers[self._open[one]] for one in idle), default=0)
            # An address never loses a connection to an address with more.
            idle = [one for one in idle if self._peers[self._open[one]] == most >= self._peers[peer]]
        else:
            idle = [one for one in idle if self._open[one] == peer]
        return min(idle, key=lambda one: one.has_asked, default=None)


class Connection(H11Protocol):
    """An HTTP/1.1 connection with a timeout for every wait for the client."""

    def __init__(
        self, config: uvicorn.Config, state: ServerState, limiter: ConnectionLimiter, header_seconds: float
    ) -> None:
        super().__init__(config, state, app_state={})
        self._limiter = limiter
        self._header_seconds = header_seconds
        self._is_admitted = False
        self.has_asked = False
        """Whether a whole request head has arrived."""
        self._timer: asyncio.TimerHandle | None = None
        self._waiting_for = ""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Admit the connection, or answer 503 and close it."""
        name = transport.get_extra_info("peername")
        peer = str(name[0]) if name else ""
        if not self._limiter.admit(self, peer):
            transport.write(RESPONSE_503)
            transport.close()
            return
        self._is_admitted = True
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._is_admitted:
            return
        self._limiter.remove(self)
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Handle data; abort if it pipelines a request."""
        super().data_received(data)
        self.has_asked = self.has_asked or self.conn.their_state is not h11.IDLE
        if self._pipelined():
            self.transport.abort()
        self._wait()

    def on_response_complete(self) -> None:
        """Continue with the next request after the rest of this one is discarded."""
        super().on_response_complete()
        if self._leftover():
            self._wait()

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP with 400; in the middle of another response, abort."""
        if self._answering():
            self.transport.abort()
            return
        self.transport.write(NOT_HTTP)
        self.transport.close()

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress."""
        return self.conn.their_state is h11.IDLE or self._leftover()

    def _answering(self) -> bool:
        return self.conn.our_state in (h11.SEND_RESPONSE, h11.SEND_BODY)

    def _pipelined(self) -> bool:
        return self._answering() and self.conn.their_state is h11.DONE and bool(self.conn.trailing_data[0])

    def _leftover(self) -> bool:
        return self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE

    def _wait(self) -> None:
        """Set the timeout of the current state: for a head, for the rest of a body, or none."""
        head = self.conn.their_state is h11.IDLE
        waiting_for = "head" if head else "leftover" if self._leftover() else ""
        if waiting_for == self._waiting_for:
            return
        self._stop()
        self._waiting_for = waiting_for
        if waiting_for:
            seconds = self._header_seconds if head else LEFTOVER_SECONDS
            self._timer = self.loop.call_later(seconds, self.transport.abort)

    def _stop(self) -> None:
        self._waiting_for = ""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _raw(status: bytes, text: bytes) -> bytes:
    """A whole response, for a connection that is then closed."""
    headers = (*SHIELDS, *CLOSE, (b"content-type", b"text/plain"), (b"content-length", b"%d" % len(text)))
    lines = [b"HTTP/1.1 " + status, *(name + b": " + value for name, value in headers), b"", text]
    return b"\r\n".join(lines)


RESPONSE_503 = _raw(b"503 Service Unavailable", b"Too many connections. Close some, or try again later.")
NOT_HTTP = _raw(b"400 Bad Request", b"This is not an HTTP request.")


def listen(addresses: Sequence[tuple[socket.AddressFamily, tuple[Any, ...]]]) -> list[socket.socket]:
    """Listen on each of the addresses, all on one port; port 0 means any free port. They are families with
    what the socket module calls an address.

    A name such as localhost has two addresses. If one stayed free, another program could listen there and
    collect the tokens of clients that try it first. Addresses of a missing family are skipped.

    Raises:
        OSError: one of the addresses is taken, or there is none to listen on.
    """
    sockets: list[socket.socket] = []
    absent = OSError(errno.EADDRNOTAVAIL, "not an address of this machine")
    try:
        for family, address in dict.fromkeys(addresses):
            port = port_of(sockets) if sockets else address[1]
            try:
                sockets.append(socket.create_server((address[0], port, *address[2:]), family=family))
                # asyncio does this only for sockets with an explicit protocol number; connections inherit
                # it. Without it every small answer waits 40 ms for the client's acknowledgement.
                sockets[-1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError as error:
                if error.errno not in _ABSENT:
                    raise
                absent = error
    except OSError:
        for opened in sockets:
            opened.close()
        raise
    if not sockets:
        raise absent
    return sockets


def port_of(sockets: Sequence[socket.socket]) -> int:
    return int(sockets[0].getsockname()[1])


@asynccontextmanager
async def listening(
    gate: Gateway, sockets: Sequence[socket.socket], options: HttpOptions
) -> AsyncGenerator[None, None]:
    """Serve `gate` on listening `sockets` while the context is open; its end ends every request."""
    config = uvicorn.Config(
        gate,
        http="h11",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=options.keep_alive_seconds,
        h11_max_incomplete_event_size=MAX_HEAD,
    )
    config.load()
    state, limiter = ServerState(), ConnectionLimiter(options)
    loop = asyncio.get_running_loop()
    accept = partial(Connection, config, state, limiter, options.header_seconds)
    servers = [await loop.create_server(accept, sock=sock, backlog=BACKLOG) for sock in sockets]
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            for server in servers:
                server.close()
            await _end(gate, state, options.ending_seconds)


async def _end(gate: Gateway, state: ServerState, seconds: float) -> None:
    gate.end()
    if state.tasks:
        await asyncio.wait(tuple(state.tasks), timeout=seconds)
    for task in tuple(state.tasks):
        task.cancel()
    if state.tasks:
        await asyncio.wait(tuple(state.tasks), timeout=seconds)
    for connection in [found for found in state.connections if isinstance(found, Connection)]:
        connection.transport.close()
