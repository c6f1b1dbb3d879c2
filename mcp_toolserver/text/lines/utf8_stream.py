"""Decodes a byte stream piece by piece without splitting characters. Invalid UTF-8 becomes U+FFFD."""

from codecs import getincrementaldecoder

_LONGEST = 4
"""Bytes of one character."""


def decode_page(data: bytes, *, last: bool) -> tuple[str, int]:
    """Decode `data`; return the text, and how many bytes it was decoded from.

    A character whose end is missing is left for the next page, unless this is the `last`.
    """
    decoder = getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=last)
    pending, _ = decoder.getstate()
    return text, len(data) - len(pending)


def without_cut_start(data: bytes) -> bytes:
    """Return `data` without the end of a character whose start is missing."""
    start = next((index for index, byte in enumerate(data[:_LONGEST]) if byte & 0xC0 != 0x80), 0)
    return data[start:]
