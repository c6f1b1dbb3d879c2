"""Checks the ZIP archives that office documents are, which may be decompression bombs."""

from io import BytesIO
from zipfile import ZipFile

from mcp_toolserver.errors import InvalidInput

_PARTS = 5_000
_PART_BYTES = 32 * 1024 * 1024
_TOTAL_BYTES = 200 * 1024 * 1024
"""Maximum unpacked bytes. Parsers need several times as much memory."""

_ENTRY = b"PK\x01\x02"
"""Signature of an entry in the central directory."""

_DECLARATIONS = tuple("<!DOCTYPE".encode(codec) for codec in ("ascii", "utf-16-le", "utf-16-be"))
"""No part of an office document may declare a type; entities, which can grow without end, need one."""


def check_package(content: bytes) -> None:
    """Look through an archive before a parser does.

    Raises:
        InvalidInput: it would be too much to unpack, or holds a document type.
        BadZipFile, and others: it is no archive.
    """
    # The archive is counted by a search, because reading its list would already cost memory for each entry.
    if content.count(_ENTRY) > _PARTS:
        raise InvalidInput(
            f"has more than {_PARTS} parts, which is more than is read. Ask the user for a smaller one"
        )
    with ZipFile(BytesIO(content)) as archive:
        parts = archive.infolist()
        sizes = [part.file_size for part in parts]
        if sum(sizes) > _TOTAL_BYTES or max(sizes, default=0) > _PART_BYTES:
            raise InvalidInput(
                f"is too large unpacked: it may have {_TOTAL_BYTES} bytes, and each part {_PART_BYTES}. "
                "Ask the user for a smaller one"
            )
        for part in parts:
            data = archive.read(part)
            if any(declaration in data for declaration in _DECLARATIONS):
                raise InvalidInput("declares a document type, which no office document may; use another copy")
