"""Reads and decompresses a response body up to a size limit."""

import zlib
from collections.abc import AsyncIterator

from mcp_toolserver.errors import Unavailable

ENCODINGS = "gzip"
"""The only compression requested; others cannot be decompressed within limits here."""

_GZIP = 31
"""Makes zlib expect gzip and no other format."""


class BodyDecoder:
    """Collects and decompresses body bytes up to a limit."""

    def __init__(self, encoding: str, most: int) -> None:
        if encoding not in ("", "identity", "gzip", "x-gzip"):
            raise Unavailable(f"the response uses the encoding {encoding[:20]!r}, which was not requested")
        self._inflate = zlib.decompressobj(_GZIP) if "gzip" in encoding else None
        self._most = most
        self._raw = 0
        self._content = bytearray()
        self.is_truncated = False
        """Whether the body exceeds the limit."""

    def add(self, chunk: bytes) -> None:
        """Add the next raw bytes.

        Raises:
            Unavailable: the bytes do not match the declared encoding.
        """
        self._raw += len(chunk)
        try:
            self._unpack(chunk)
        except zlib.error:
            raise Unavailable("the response does not match its declared encoding") from None
        # Also limit input that decompresses to nothing.
        self.is_truncated = self.is_truncated or self._raw > self._most

    def content(self) -> bytes:
        """Return the decoded bytes."""
        return bytes(self._content)

    def _unpack(self, chunk: bytes) -> None:
        while chunk and not self.is_truncated:
            room = self._most + 1 - len(self._content)
            if self._inflate is None:
                piece, chunk = chunk[:room], b""
            else:
                piece = self._inflate.decompress(chunk, room)
                chunk = self._inflate.unconsumed_tail or self._next_member()
            self._content += piece
            if len(self._content) > self._most:
                del self._content[self._most :]
                self.is_truncated = True

    def _next_member(self) -> bytes:
        """Return the data after a gzip member, which starts the next member."""
        assert self._inflate is not None
        rest = self._inflate.unused_data
        if rest:
            self._inflate = zlib.decompressobj(_GZIP)
        return rest


async def read_body(chunks: AsyncIterator[bytes], encoding: str, most: int) -> tuple[bytes, bool]:
    """Return at most `most` decoded bytes of the body, and whether that is all of it.

    Raises:
        Unavailable: as for `BodyDecoder`.
    """
    body = BodyDecoder(encoding, most)
    async for chunk in chunks:
        body.add(chunk)
        if body.is_truncated:
            break
    return body.content(), not body.is_truncated
