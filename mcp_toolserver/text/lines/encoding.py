"""Detects the encoding of text, and bytes that are not text. Cuts text and streams between characters."""

import codecs
from dataclasses import dataclass

from mcp_toolserver.errors import InvalidInput

_TEXT_CONTROLS = frozenset({7, 8, 9, 10, 11, 12, 13, 0x1A, 0x1B})
"""Control bytes that turn up in text: white space, bell, the end mark of DOS, the escape of terminals."""

_CONTROLS = bytes(set(range(32)) - _TEXT_CONTROLS)
_ASCII_TEXT = bytes({*_TEXT_CONTROLS, *range(32, 127)})

_CONTROLS_PER_100 = 10
"""Valid UTF-8 with a higher share of these is taken for binary data."""

_CONTROLS_PER_100_IN_BYTES = 2
"""The same for encodings in which every byte is a character, so that decoding proves nothing."""

_ASCII_PER_100_IN_LATIN_1 = 70


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """One way to read bytes as text. For bytes it was detected on, `encode(decode(raw)) == raw`."""

    name: str
    """Display name."""
    codec: str
    """Python's name of the codec, without byte order mark."""
    bom: bytes

    def decode(self, raw: bytes) -> str:
        """Return the text without the byte order mark.

        Raises:
            UnicodeDecodeError: `raw` is not what this encoding was detected on.
        """
        return raw.removeprefix(self.bom).decode(self.codec)

    def encode(self, text: str) -> bytes:
        """Return the bytes with the byte order mark.

        Raises:
            UnicodeEncodeError: a character that this encoding does not have.
        """
        return self.bom + text.encode(self.codec)


UTF_8 = Encoding(name="utf-8", codec="utf-8", bom=b"")
_UTF_8_BOM = Encoding(name="utf-8 with BOM", codec="utf-8", bom=codecs.BOM_UTF8)
_UTF_16 = (
    Encoding(name="utf-16-le with BOM", codec="utf-16-le", bom=codecs.BOM_UTF16_LE),
    Encoding(name="utf-16-be with BOM", codec="utf-16-be", bom=codecs.BOM_UTF16_BE),
)
_WINDOWS_1252 = Encoding(name="windows-1252", codec="cp1252", bom=b"")
_LATIN_1 = Encoding(name="latin-1", codec="latin-1", bom=b"")


def detect(raw: bytes, *, complete: bool = True) -> Encoding | None:
    """Return the encoding of a text file, or None for anything else.

    With `complete` false, `raw` is the start of a file and may end within a character.
    """
    utf_16 = next((encoding for encoding in _UTF_16 if raw.startswith(encoding.bom)), None)
    if utf_16 is not None:
        text = _decoded(raw, utf_16, complete)
        return utf_16 if text is not None and _is_text(text.encode(), _CONTROLS_PER_100) else None
    utf_8 = _UTF_8_BOM if raw.startswith(codecs.BOM_UTF8) else UTF_8
    if _decoded(raw, utf_8, complete) is not None:
        return utf_8 if _is_text(raw, _CONTROLS_PER_100) else None
    return _single_byte(raw)


def encoding_of_lines(raw: bytes, *, complete: bool) -> Encoding:
    """Detect the encoding of a file whose lines are to be shown; see `detect`.

    Raises:
        InvalidInput: it is not text.
    """
    if (encoding := detect(raw, complete=complete)) is None:
        raise InvalidInput("The file is binary, not text: it has no lines to show. Choose a text file.")
    return encoding


def encoding_of(path: str, raw: bytes) -> Encoding:
    """Detect the encoding of `raw`. Raises: InvalidInput: it is not text."""
    encoding = detect(raw)
    if encoding is None:
        raise InvalidInput(
            f"'{path}' is not a text file and cannot be edited; write_file can replace it whole."
        )
    return encoding


def encoded(path: str, text: str, encoding: Encoding) -> bytes:
    """Encode `text`. Raises: InvalidInput: a character that the encoding does not have."""
    try:
        return encoding.encode(text)
    except UnicodeEncodeError as error:
        character = text[error.start]
        raise InvalidInput(
            f"The new text holds {character!r} (U+{ord(character):04X}), which {encoding.name}, the encoding "
            f"of '{path}', does not have. Use other characters, or write the whole file anew with write_file."
        ) from None


def _single_byte(raw: bytes) -> Encoding | None:
    if not _is_text(raw, _CONTROLS_PER_100_IN_BYTES):
        return None
    if _decoded(raw, _WINDOWS_1252, complete=True) is not None:
        return _WINDOWS_1252
    ascii_bytes = len(raw) - len(raw.translate(None, _ASCII_TEXT))
    return _LATIN_1 if ascii_bytes * 100 >= len(raw) * _ASCII_PER_100_IN_LATIN_1 else None


def _decoded(raw: bytes, encoding: Encoding, complete: bool) -> str | None:
    decoder = codecs.getincrementaldecoder(encoding.codec)()
    try:
        return decoder.decode(raw.removeprefix(encoding.bom), complete)
    except UnicodeDecodeError:
        return None


def _is_text(raw: bytes, controls_per_100: int) -> bool:
    controls = len(raw) - len(raw.translate(None, _CONTROLS))
    return b"\0" not in raw and controls * 100 <= len(raw) * controls_per_100


_LONGEST = 4
"""Bytes of one character."""


def decode_page(data: bytes, *, last: bool) -> tuple[str, int]:
    """Decode `data`; return the text, and how many bytes it was decoded from.

    A character whose end is missing is left for the next page, unless this is the `last`.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=last)
    pending, _ = decoder.getstate()
    return text, len(data) - len(pending)


def without_cut_start(data: bytes) -> bytes:
    """Return `data` without the end of a character whose start is missing."""
    others = (index for index, byte in enumerate(data[:_LONGEST]) if byte & 0xC0 != 0x80)
    return data[next(others, len(data) if len(data) < _LONGEST else 0) :]


def head_bytes(text: str, limit: int) -> str:
    """Return the longest start of `text` of at most `limit` UTF-8 bytes."""
    if len(text) * 4 <= limit:
        return text
    encoded = text.encode(errors="surrogatepass")
    return text if len(encoded) <= limit else encoded[:limit].decode(errors="ignore")


def tail_bytes(text: str, limit: int) -> str:
    """Return the longest end of `text` of at most `limit` UTF-8 bytes."""
    encoded = text.encode(errors="surrogatepass")
    return text if len(encoded) <= limit else encoded[len(encoded) - limit :].decode(errors="ignore")
