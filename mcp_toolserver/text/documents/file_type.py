"""Detects documents and images by name and first bytes, and the size of an image. Runs for every file read,
so it imports little.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mcp_toolserver.errors import InvalidInput

HEAD_BYTES = 12
"""Number of first bytes that determine the type."""


@dataclass(frozen=True, kw_only=True)
class Image:
    """A picture for the model."""

    data: bytes
    mime_type: str


DocumentKind = Literal["notebook", "PDF", "docx", "xlsx"]

PARSERS = {"PDF": "pypdf", "Word (docx)": "docx", "Excel (xlsx)": "openpyxl"}
"""Kind of document → module of its parser."""

_PICTURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_PDF = b"%PDF-"
_ZIP = b"PK\x03\x04"
_PACKAGES: Mapping[str, DocumentKind] = {".docx": "docx", ".docm": "docx", ".xlsx": "xlsx", ".xlsm": "xlsx"}
_NOTEBOOK = ".ipynb"
_ENDING = 6
"""Maximum length of a file name extension."""


def image_type(head: bytes) -> str | None:
    """Return the MIME type of a picture that starts with `head`; None for anything else."""
    if head.startswith(b"RIFF") and head[8:HEAD_BYTES] == b"WEBP":
        return "image/webp"
    return next((mime_type for start, mime_type in _PICTURES.items() if head.startswith(start)), None)


def document_kind(path: str, head: bytes) -> DocumentKind | None:
    """Return the type of a document, by its first bytes and its name; None for other files."""
    if head.startswith(_PDF):
        return "PDF"
    ending = path[-_ENDING:].lower()
    if head.startswith(_ZIP):
        return next((kind for end, kind in _PACKAGES.items() if ending.endswith(end)), None)
    return "notebook" if ending == _NOTEBOOK else None


_OTHERS: Mapping[bytes, str] = {
    b"BM": "a BMP image",
    b"II*\0": "a TIFF image",
    b"MM\0*": "a TIFF image",
    b"\0\0\1\0": "an ICO image",
    b"%PDF": "a PDF file",
}

Size = tuple[int, int]
"""Width and height in pixels."""

_PLACES = {"image/png": (">II", 16), "image/gif": ("<HH", 6)}
"""Format and place of the size, where it is fixed."""

_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
_BARE = frozenset({0x01, *range(0xD0, 0xD9)})
"""JPEG markers without a length."""

MOST_BYTES = 5 * 1024 * 1024
"""Maximum bytes of a picture that is shown."""

MOST_PIXELS = 8_000
"""Maximum width or height: model services refuse a whole conversation with a larger picture."""


def viewable(data: bytes) -> str | None:
    """Return the MIME type of a picture that a model can look at; None for anything else."""
    mime_type = image_type(data[:HEAD_BYTES])
    found = pixels(data, mime_type) if mime_type and len(data) <= MOST_BYTES else None
    return mime_type if found and min(found) > 0 and max(found) <= MOST_PIXELS else None


def caption(path: str, data: bytes, mime_type: str, size: int) -> str:
    """Return a line that describes the picture in the file at `path`, which has `size` bytes and begins with
    `data`.

    Raises:
        InvalidInput: models cannot look at it.
    """
    if size > MOST_BYTES:
        raise InvalidInput(
            f"'{path}' is an image of {size} bytes, and at most {MOST_BYTES} can be shown. Scale it down."
        )
    found = pixels(data, mime_type)
    if found is None or 0 in found:
        raise InvalidInput(f"'{path}' begins like {mime_type}, but is damaged or cut off.")
    width, height = found
    if max(found) > MOST_PIXELS:
        raise InvalidInput(
            f"'{path}' is {width} x {height} pixels, and models take at most {MOST_PIXELS} either way. "
            "Scale it down, or cut a part out."
        )
    return f"{path}: {mime_type}, {width} x {height} pixels, {size} bytes"


def other_type(head: bytes) -> str | None:
    """Return the name of an image type that models cannot read, if known."""
    if head[4:8] == b"ftyp" and head[8:12] in (b"avif", b"heic", b"heix", b"mif1"):
        return "an AVIF or HEIC image"
    return next((name for start, name in _OTHERS.items() if head.startswith(start)), None)


def pixels(data: bytes, mime_type: str) -> Size | None:
    """Return the width and height of the image; None if the header lacks them."""
    try:
        if mime_type in _PLACES:
            width, height = struct.unpack_from(_PLACES[mime_type][0], data, _PLACES[mime_type][1])
            return width, height
        return (_jpeg if mime_type == "image/jpeg" else _webp)(data)
    except (struct.error, IndexError):
        return None


def _jpeg(data: bytes) -> Size | None:
    place = 2
    while data[place] == 0xFF:
        mark = data[place + 1]
        if mark in _FRAMES:
            height, width = struct.unpack_from(">HH", data, place + 5)
            return width, height
        if mark == 0xFF:
            place += 1
        elif mark in _BARE:
            place += 2
        else:
            place += 2 + int(struct.unpack_from(">H", data, place + 2)[0])
    return None


def _webp(data: bytes) -> Size | None:
    match data[12:16]:
        case b"VP8X":
            return 1 + _three(data, 24), 1 + _three(data, 27)
        case b"VP8L":
            bits = int(struct.unpack_from("<I", data, 21)[0])
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case _:
            return None


def _three(data: bytes, place: int) -> int:
    low, high = struct.unpack_from("<HB", data, place)
    return int(low) | int(high) << 16
