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
        self._needed: int | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """Return the messages that `data` completes.

        Raises:
            ProtocolError: a header is invalid, or announces too many bytes.
        """
        self._buffer += data
        bodies: list[bytes] = []
        while (body := self._next()) is not None:
            bodies.append(body)
        return bodies

    def _next(self) -> bytes | None:
        if self._needed is None:
            self._needed = self._header()
        if self._needed is None or len(self._buffer) < self._needed:
            return None
        body = bytes(self._buffer[: self._needed])
        del self._buffer[: self._needed]
        self._needed = None
        return body

    def _header(self) -> int | None:
        """Return the length of the next body. Output of a launcher before the first header is skipped with
        it."""
        end = self._buffer.find(_END, 0, _MOST_HEADER)
        if end < 0:
            if len(self._buffer) >= _MOST_HEADER:
                raise ProtocolError("does not speak the Language Server Protocol")
            return None
        given = _LENGTH.search(bytes(self._buffer[:end]).replace(b"\r\n", b"\n"))
        if given is None:
            raise ProtocolError("does not speak the Language Server Protocol")
        if int(given[1]) > self._most:
            raise ProtocolError(f"sent a message of more than {self._most:,} bytes")
        del self._buffer[: end + len(_END)]
        return int(given[1])
