"""One TCP connection: uvicorn's HTTP/1.1 protocol plus a timeout for every wait.

The server closes a connection that does not send a whole request head in time, that keeps sending a body
after the answer, or that pipelines a second request. It reads while a call runs, because that is how it
notices that the client disconnects. Connections over the limit get a 503 and are closed.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from mcp_toolserver.protocol.refusals import CLOSE, SHIELDS

LEFTOVER_SECONDS = 2.0
"""How long the rest of a body is discarded after its request was refused. After an immediate close many
clients would not read the answer."""


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """Limits on the number of connections and on every wait for a client."""

    max_connections: int
    max_per_peer: int
    header_seconds: float
    keep_alive_seconds: int
    ending_seconds: float = 5.0
    """How long requests may take to end at shutdown; a cancelled call kills its processes in this time."""


class ConnectionLimiter:
    """Limits connections, in all and by peer address.

    At the limit, a new connection replaces one without a request in progress. Otherwise a client that opens
    connections and sends nothing would lock out every other client of its address, and on loopback all
    clients share one address.
    """

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._open: dict[Connection, str] = {}
        """The peer address of each connection; the oldest connection first."""
        self._peers: Counter[str] = Counter()

    def admit(self, connection: "Connection", peer: str) -> bool:
        """Count a connection, replacing an idle one at the limit; False if none is idle."""
        if not self._has_room(peer):
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

    def _has_room(self, peer: str) -> bool:
        return self._has_room_for(peer) and len(self._open) < self._timeouts.max_connections

    def _has_room_for(self, peer: str) -> bool:
        return self._peers[peer] < self._timeouts.max_per_peer

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
        """Forget the connection."""
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
