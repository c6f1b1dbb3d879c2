"""The process of the proxy: accepts on a listening socket of each session, and connects to allowed hosts.

It speaks HTTP: CONNECT for TLS to the host of the same name, and one request for an `http://` address per
connection. TLS is not opened. It is confined to sockets and to what looks up names.
"""

import asyncio
import contextlib
import json
import os
import resource
import socket
import time
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NoReturn

from mcp_toolserver.runtime.sandbox.broker import messages
from mcp_toolserver.runtime.sandbox.broker.fd_passing import receive_packet
from mcp_toolserver.runtime.sandbox.layers.process_locks import LockError, lock_proxy
from mcp_toolserver.runtime.sandbox.proxy.allowed_hosts import AllowedHosts, is_number, spelled
from mcp_toolserver.runtime.sandbox.proxy.client_hello import ACCESS_DENIED, server_name
from mcp_toolserver.runtime.sandbox.proxy.http_request import ProxyRequest, Rejected, parse_request

MOST_CONNECTIONS, MOST_OF_A_SESSION = 512, 64
"""At once. Further ones wait until they are accepted."""

PAUSE_SECONDS = 0.01
"""Between two connections of a session, because each adds an entry to the audit log."""

HEAD_SECONDS, CONNECT_SECONDS, IDLE_SECONDS, END_SECONDS = 10.0, 20.0, 300.0, 0.3
"""For a request, and for the first message of TLS; for looking up and connecting; without any byte in either
direction; and for the last reports."""

LONGEST_HEAD = 32 << 10
_CHUNK = 1 << 16
_LOOKUPS = 32

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def serve(orders: socket.socket, hosts: Sequence[str]) -> None:
    """Obey the broker until it is gone. The first packet says why the process cannot be confined; it is
    empty but for a space where it is."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Imported before the files are out of reach.
    "a".encode("idna")
    try:
        lock_proxy()
    except LockError as error:
        orders.send(str(error).encode())
        return
    orders.send(b" ")
    asyncio.run(_Proxy(orders, AllowedHosts.of(hosts)).run())


@dataclass(kw_only=True)
class _Connection:
    """What the proxy reports of a connection."""

    session: str
    host: str = ""
    port: int = 0
    refused: str = ""
    """Why; empty if it is allowed."""
    add: str = ""
    """What the operator can add to the list for it to be allowed."""
    sent: int = 0
    received: int = 0
    is_reported: bool = False
    began: float = field(default_factory=time.monotonic)

    def report(self) -> bytes:
        seconds = time.monotonic() - self.began
        return json.dumps({**vars(self), "ms": round(1000 * seconds, 3)}).encode()


class _Proxy:
    def __init__(self, orders: socket.socket, allowed: AllowedHosts) -> None:
        self.orders, self.allowed = orders, allowed
        self.reports: socket.socket | None = None
        self.is_reporting, self.ended = asyncio.Event(), asyncio.Event()
        self.sessions: dict[bytes, asyncio.Task[None]] = {}
        self.connections: set[asyncio.Task[None]] = set()
        self.slots = asyncio.Semaphore(MOST_CONNECTIONS)

    async def run(self) -> NoReturn:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(_LOOKUPS))
        loop.add_reader(self.orders, self._obey)
        await self.ended.wait()
        for task in self.connections:
            task.cancel()
        # Each reports what it has passed on.
        await asyncio.wait((asyncio.create_task(asyncio.sleep(0)), *self.connections), timeout=END_SECONDS)
        # Look-ups and slow hosts are not waited for.
        os._exit(0)

    def _obey(self) -> None:
        message, descriptors = receive_packet(self.orders)
        sockets = [socket.socket(fileno=one) for one in descriptors]
        for one in sockets:
            one.setblocking(False)
        kind, session = message[:1], message[1:]
        if not message:
            self.ended.set()
        elif kind == messages.END and (task := self.sessions.pop(session, None)):
            task.cancel()
        elif kind == messages.CONNECTIONS and sockets:
            self.reports = sockets[0]
            self.is_reporting.set()
        elif kind == messages.REQUEST and sockets:
            self.sessions[session] = asyncio.create_task(self._accept(session.decode(), sockets[0]))

    async def _accept(self, session: str, listener: socket.socket) -> None:
        slots = asyncio.Semaphore(MOST_OF_A_SESSION)

        def free(task: asyncio.Task[None]) -> None:
            self.connections.discard(task)
            self.slots.release()
            slots.release()

        with listener:
            await self.is_reporting.wait()
            while True:
                await slots.acquire()
                accepted, _ = await asyncio.get_running_loop().sock_accept(listener)
                await self.slots.acquire()
                task = asyncio.create_task(self._answer(session, accepted))
                self.connections.add(task)
                task.add_done_callback(free)
                await asyncio.sleep(PAUSE_SECONDS)

    async def _answer(self, session: str, accepted: socket.socket) -> None:
        seen = _Connection(session=session)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            client = await asyncio.open_connection(sock=accepted, limit=LONGEST_HEAD)
            async with _closing(client[1]):
                try:
                    await self._serve(seen, client)
                except (Rejected, asyncio.LimitOverrunError) as error:
                    await self._reject(seen, client, error)

    async def _reject(self, seen: _Connection, client: Streams, error: Exception) -> None:
        status = error.status if isinstance(error, Rejected) else "431 Request Header Fields Too Large"
        seen.refused = str(error)
        # First, so that the server has it when the command goes on.
        await self._report(seen)
        text = f"mcp-toolserver: {error}\n".encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n"
        client[1].write(head.encode() + b"Connection: close\r\n\r\n" + text if status else ACCESS_DENIED)
        client[1].write_eof()
        # Closing with something unread resets the connection, and the answer would be lost.
        async with asyncio.timeout(HEAD_SECONDS):
            while await client[0].read(_CHUNK):
                pass

    async def _report(self, seen: _Connection) -> None:
        """Report a connection, unless that is done."""
        assert self.reports is not None
        if seen.is_reported:
            return
        seen.is_reported = True
        await asyncio.get_running_loop().sock_sendall(self.reports, seen.report())

    async def _serve(self, seen: _Connection, client: Streams) -> None:
        async with asyncio.timeout(HEAD_SECONDS):
            request = parse_request(await client[0].readuntil(b"\r\n\r\n"))
        seen.host, seen.port = request.host, request.port
        host = await self._connect(seen, request)
        async with _closing(host[1]):
            try:
                first, body = request.head, request.body
                if not first:
                    client[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    first, body = await _checked_hello(seen, client[0]), None
                host[1].write(first)
                seen.sent += len(first)
                await self._relay(seen, client, host, body)
            finally:
                await self._report(seen)

    async def _connect(self, seen: _Connection, request: ProxyRequest) -> Streams:
        """Raises: Rejected: the host is not allowed, or cannot be reached."""
        host, port = request.host, request.port
        entry = spelled(host, port)
        if not self.allowed.allows(host, port):
            seen.add = entry
            raise Rejected(f"{entry} is not among the allowed hosts")
        failure = f"{host} has no address; check the name"
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                with contextlib.suppress(OSError, UnicodeError):
                    loop = asyncio.get_running_loop()
                    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                    failure = f"{host} cannot be reached on port {port}"
                    addresses = tuple(dict.fromkeys(str(one[4][0]) for one in found))
                    if refused := [one for one in addresses if not self.allowed.permits(one, host, port)]:
                        if AllowedHosts.of((entry,)).permits(refused[0], host, port):
                            seen.add = entry
                        raise Rejected(f"{host} has the address {refused[0]}, which is not public")
                    for address in addresses:
                        with contextlib.suppress(OSError):
                            return await asyncio.open_connection(address, port)
        except TimeoutError:
            failure = f"{host} did not answer within {CONNECT_SECONDS:g} s"
        raise Rejected(failure, "502 Bad Gateway")

    async def _relay(self, seen: _Connection, client: Streams, host: Streams, body: int | None) -> None:
        """Pass on what comes until the host ends its side; of the client `body` bytes, None for all."""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(IDLE_SECONDS) as idle:

                async def upwards() -> None:
                    left = body
                    while left != 0 and (data := await client[0].read(min(_CHUNK, left or _CHUNK))):
                        left = None if left is None else left - len(data)
                        seen.sent += len(data)
                        await passed(data, host[1])
                    if body is None:
                        host[1].write_eof()
                    elif left:
                        host[1].close()

                async def passed(data: bytes, to: asyncio.StreamWriter) -> None:
                    idle.reschedule(asyncio.get_running_loop().time() + IDLE_SECONDS)
                    to.write(data)
                    await to.drain()

                sending = asyncio.create_task(upwards())
                try:
                    while data := await host[0].read(_CHUNK):
                        seen.received += len(data)
                        await passed(data, client[1])
                finally:
                    sending.cancel()
                    await asyncio.gather(sending, return_exceptions=True)


async def _checked_hello(seen: _Connection, reader: asyncio.StreamReader) -> bytes:
    """The first message of TLS, with all that came with it. Raises: Rejected: it is not to the host that the
    tunnel is for."""
    data = b""
    try:
        async with asyncio.timeout(HEAD_SECONDS):
            while (name := server_name(data)) is None:
                if not (more := await reader.read(_CHUNK)):
                    raise ValueError("no TLS came")
                data += more
    except (ValueError, OSError) as error:
        seen.refused = f"a tunnel to {seen.host} has to carry TLS: {error or 'none came'}"
        raise Rejected(seen.refused, "") from None
    if name != ("" if is_number(seen.host) else seen.host):
        seen.refused = f"TLS in a tunnel to {seen.host} names another server, or none"
        raise Rejected(seen.refused, "")
    return data


@contextlib.asynccontextmanager
async def _closing(writer: asyncio.StreamWriter) -> AsyncGenerator[None]:
    """Close a connection, with what is still to be written."""
    try:
        yield
    finally:
        writer.close()
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                await writer.wait_closed()
        except (OSError, TimeoutError):
            writer.transport.abort()
