"""Decodes a file for editing and encodes it again in the same encoding."""

from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.text.lines.encoding import Encoding, detect


def encoding_of(path: str, raw: bytes) -> Encoding:
    """Detect the encoding of `raw`.

    Raises:
        InvalidInput: it does not.
    """
    encoding = detect(raw)
    if encoding is None:
        raise InvalidInput(
            f"'{path}' is not a text file and cannot be edited; write_file can replace it whole."
        )
    return encoding


def encoded(path: str, text: str, encoding: Encoding) -> bytes:
    """Encode `text`.

    Raises:
        InvalidInput: a character that the encoding does not have.
    """
    try:
        return encoding.encode(text)
    except UnicodeEncodeError as error:
        character = text[error.start]
        raise InvalidInput(
            f"The new text holds {character!r} (U+{ord(character):04X}), which {encoding.name}, the encoding "
            f"of '{path}', does not have. Use other characters, or write the whole file anew with write_file."
        ) from None
