"""Listens on every address of a host name and serves the connections."""

import asyncio
import errno
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import uvicorn
from uvicorn.server import ServerState

from mcp_toolserver.protocol.http.connection import Connection, ConnectionLimiter, Timeouts
from mcp_toolserver.protocol.http.gate import Gateway

BACKLOG = 512
"""Maximum connections that wait to be accepted."""

MAX_HEAD = 16 * 1024
"""Maximum bytes of a request's head."""

_ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


@dataclass(frozen=True, kw_only=True)
class Address:
    """One address of a host, with the port wanted."""

    family: socket.AddressFamily
    name: tuple[Any, ...]
    """As in the socket module: address, port, and two more numbers for IPv6."""


def listen(addresses: Sequence[Address]) -> list[socket.socket]:
    """Listen on each of the addresses, all on one port; port 0 means any free port.

    A name such as localhost has two addresses. If one stayed free, another program could listen there and
    collect the tokens of clients that try it first. Addresses of a missing family are skipped.

    Raises:
        OSError: one of the addresses is taken, or there is none to listen on.
    """
    sockets: list[socket.socket] = []
    absent = OSError(errno.EADDRNOTAVAIL, "not an address of this machine")
    try:
        for address in dict.fromkeys(addresses):
            port = port_of(sockets) if sockets else address.name[1]
            try:
                name = (address.name[0], port, *address.name[2:])
                sockets.append(socket.create_server(name, family=address.family))
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
    """The port that the sockets share."""
    return int(sockets[0].getsockname()[1])


@asynccontextmanager
async def listening(
    gate: Gateway, sockets: Sequence[socket.socket], timeouts: Timeouts
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
        timeout_keep_alive=timeouts.keep_alive_seconds,
        h11_max_incomplete_event_size=MAX_HEAD,
    )
    config.load()
    state, limiter = ServerState(), ConnectionLimiter(timeouts)
    loop = asyncio.get_running_loop()

    def accept() -> Connection:
        return Connection(config, state, limiter, timeouts.header_seconds)

    servers = [await loop.create_server(accept, sock=sock, backlog=BACKLOG) for sock in sockets]
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            for server in servers:
                server.close()
            await _end(gate, state, timeouts.ending_seconds)


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
