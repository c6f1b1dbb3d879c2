"""Detects documents and images by name and first bytes. Runs for every file read, so it imports little."""

from collections.abc import Mapping
from typing import Literal

HEAD_BYTES = 12
"""Number of first bytes that determine the type."""

DocumentKind = Literal["notebook", "PDF", "docx", "xlsx"]

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
