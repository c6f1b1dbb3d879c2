"""One TCP connection: uvicorn's HTTP/1.1 protocol with what it lacks, a bound on every wait.

A connection that sends no whole request head in time is closed, so is one that goes on sending a body after
its answer, or a second request before the answer to the first: reading must go on while a call runs, for that
is how the client's leaving is noticed. Connections over the limit are told so and closed at once.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from mcp_toolserver.protocol.refusal import CLOSE, SHIELDS

LEFTOVER_SECONDS = 2.0
"""How long the rest of a body is read and thrown away after its request was refused. Closing at once would
make many clients miss the answer."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How much connections may take, and how long."""

    max_connections: int
    max_per_peer: int
    header_seconds: float
    keep_alive_seconds: int
    ending_seconds: float = 5.0
    """How long requests get to wind down at shutdown; a cancelled call kills its processes in this time."""


class Door:
    """Counts connections, in all and by peer address."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._peers: Counter[str] = Counter()

    def enter(self, peer: str) -> bool:
        """Count a connection in, or say that there is no room."""
        if self._peers[peer] >= self._patience.max_per_peer or self._full():
            return False
        self._peers[peer] += 1
        return True

    def leave(self, peer: str) -> None:
        """Count a connection out."""
        self._peers[peer] -= 1
        if not self._peers[peer]:
            del self._peers[peer]

    def _full(self) -> bool:
        return self._peers.total() >= self._patience.max_connections


class Connection(H11Protocol):
    """An HTTP/1.1 connection with a bound on every wait for the client."""

    def __init__(self, config: uvicorn.Config, state: ServerState, door: Door, header_seconds: float) -> None:
        super().__init__(config, state, app_state={})
        self._door = door
        self._header_seconds = header_seconds
        self._peer: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiting_for = ""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Admit the connection or turn it away."""
        name = transport.get_extra_info("peername")
        peer = str(name[0]) if name else ""
        if not self._door.enter(peer):
            transport.write(TURNED_AWAY)
            transport.close()
            return
        self._peer = peer
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        if self._peer is None:
            return
        self._door.leave(self._peer)
        self._stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what the client sent."""
        super().data_received(data)
        if self._pipelined():
            self.transport.abort()
        self._wait()

    def on_response_complete(self) -> None:
        """Go on to the next request, once the rest of this one is out of the way."""
        super().on_response_complete()
        if self._leftover():
            self._wait()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP; in the middle of another answer there is no way to say it."""
        if self._answering():
            self.transport.abort()
            return
        self.transport.write(NOT_HTTP)
        self.transport.close()

    def _answering(self) -> bool:
        return self.conn.our_state in (h11.SEND_RESPONSE, h11.SEND_BODY)

    def _pipelined(self) -> bool:
        return self._answering() and self.conn.their_state is h11.DONE and bool(self.conn.trailing_data[0])

    def _leftover(self) -> bool:
        return self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE

    def _wait(self) -> None:
        """Keep the clock that fits: for a head, for leftovers, or none while a request is served."""
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
    """A whole response for a connection that gets no further."""
    headers = (*SHIELDS, *CLOSE, (b"content-type", b"text/plain"), (b"content-length", b"%d" % len(text)))
    lines = [b"HTTP/1.1 " + status, *(name + b": " + value for name, value in headers), b"", text]
    return b"\r\n".join(lines)


TURNED_AWAY = _raw(b"503 Service Unavailable", b"Too many connections. Close some, or try again later.")
NOT_HTTP = _raw(b"400 Bad Request", b"This is not an HTTP request.")
