"""Encodes and decodes framed JSON-RPC messages with size limits, because language servers are untrusted."""

import json
import re

MOST_BYTES = 16 << 20
"""Bytes of one message."""

_MOST_HEADER = 4 << 10
_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"^content-length:[ \t]*([0-9]{1,12})[ \t]*$", re.IGNORECASE | re.MULTILINE)


class ProtocolError(Exception):
    """The data violates the protocol; the text says how and follows "it"."""


def encode_message(message: dict[str, object]) -> bytes:
    """Encode a message."""
    body = json.dumps(message, separators=(",", ":")).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def decode_message(body: bytes) -> object:
    """Decode a message body. Raises: ProtocolError: it is not JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise ProtocolError("sent invalid JSON") from None


class FrameDecoder:
    """Splits a byte stream into message bodies."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the messages that `data` completes.

        Raises:
            ProtocolError: a header is invalid, or announces too many bytes.
        """
        self._buffer += data
        bodies: list[bytes] = []
        while (place := self._next()) is not None and place[1] <= len(self._buffer):
            bodies.append(bytes(self._buffer[place[0] : place[1]]))
            del self._buffer[: place[1]]
        return bodies

    def _next(self) -> tuple[int, int] | None:
        """Return where the next body is. Output of a launcher before the first header is skipped with it."""
        end = self._buffer.find(_END, 0, _MOST_HEADER)
        if end < 0 and len(self._buffer) < _MOST_HEADER:
            return None
        given = _LENGTH.search(bytes(self._buffer[: max(end, 0)]).replace(b"\r\n", b"\n"))
        if given is None:
            raise ProtocolError("does not speak the Language Server Protocol")
        if int(given[1]) > self._most:
            raise ProtocolError(f"sent a message of more than {self._most:,} bytes")
        start = end + len(_END)
        return start, start + int(given[1])
