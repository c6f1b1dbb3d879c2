"""Messages of JSON-RPC in a stream of bytes, as language servers send them: bounded, for nobody vouches for
what comes.
"""

import json
import re

MOST_BYTES = 16 << 20
"""Of one message."""

_MOST_HEADER = 4 << 10
_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"^content-length:[ \t]*([0-9]{1,12})[ \t]*$", re.IGNORECASE | re.MULTILINE)


class Unintelligible(Exception):
    """It is not the protocol; the text says how, and goes on from "it"."""


def framed(message: dict[str, object]) -> bytes:
    """A message as it is sent."""
    body = json.dumps(message, separators=(",", ":")).encode()
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def parsed(body: bytes) -> object:
    """The JSON in a message. Raises: Unintelligible: there is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise Unintelligible("sent a message that is not JSON") from None


class Frames:
    """Takes a stream apart into the bodies of its messages."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._buffer = bytearray()
        self._needed: int | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that `data` completes.

        Raises:
            Unintelligible: a header is none, or announces too much.
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
        """The length of the next body. What a launcher prints before the first header counts as one."""
        end = self._buffer.find(_END, 0, _MOST_HEADER)
        if end < 0:
            if len(self._buffer) >= _MOST_HEADER:
                raise Unintelligible("does not speak the Language Server Protocol")
            return None
        given = _LENGTH.search(bytes(self._buffer[:end]).replace(b"\r\n", b"\n"))
        if given is None:
            raise Unintelligible("does not speak the Language Server Protocol")
        if int(given[1]) > self._most:
            raise Unintelligible(f"sent a message of more than {self._most:,} bytes")
        del self._buffer[: end + len(_END)]
        return int(given[1])
