"""The body of an answer: taken as it comes, unpacked on the way, and never more of it than was asked for."""

import zlib
from collections.abc import AsyncIterator

from mcp_toolserver.errors import Unavailable

ENCODINGS = "gzip"
"""What is asked for. Others cannot be unpacked within bounds here."""

_GZIP = 31
"""Tells zlib to expect gzip and no other format."""


class Unpacking:
    """Collects the bytes of a body up to a limit."""

    def __init__(self, encoding: str, most: int) -> None:
        if encoding not in ("", "identity", "gzip", "x-gzip"):
            raise Unavailable(f"the answer is packed as {encoding[:20]!r}, which was not asked for")
        self._inflate = zlib.decompressobj(_GZIP) if "gzip" in encoding else None
        self._most = most
        self._raw = 0
        self._kept = bytearray()
        self.is_over = False
        """Whether there is more than the limit."""

    def add(self, chunk: bytes) -> None:
        """Take the next bytes as they were sent.

        Raises:
            Unavailable: they are not what the server said they are.
        """
        self._raw += len(chunk)
        try:
            self._unpack(chunk)
        except zlib.error:
            raise Unavailable("the answer is not packed the way its server says") from None
        # What unpacks to nothing is bounded too.
        self.is_over = self.is_over or self._raw > self._most

    def taken(self) -> bytes:
        """All that was collected."""
        return bytes(self._kept)

    def _unpack(self, chunk: bytes) -> None:
        while chunk and not self.is_over:
            room = self._most + 1 - len(self._kept)
            if self._inflate is None:
                piece, chunk = chunk[:room], b""
            else:
                piece = self._inflate.decompress(chunk, room)
                chunk = self._inflate.unconsumed_tail or self._rest()
            self._kept += piece
            if len(self._kept) > self._most:
                del self._kept[self._most :]
                self.is_over = True

    def _rest(self) -> bytes:
        """What follows the end of one packed part is the next part."""
        assert self._inflate is not None
        rest = self._inflate.unused_data
        if rest:
            self._inflate = zlib.decompressobj(_GZIP)
        return rest


async def read_body(chunks: AsyncIterator[bytes], encoding: str, most: int) -> tuple[bytes, bool]:
    """At most `most` bytes of the body, unpacked, and whether that is all of it.

    Raises:
        Unavailable: as for `Unpacking`.
    """
    body = Unpacking(encoding, most)
    async for chunk in chunks:
        body.add(chunk)
        if body.is_over:
            break
    return body.taken(), not body.is_over
