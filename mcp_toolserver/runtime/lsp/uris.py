"""Converts absolute paths to file URIs and back."""

import os
from urllib.parse import quote_from_bytes, unquote_to_bytes, urlsplit


def to_uri(path: str) -> str:
    """Return the file URI of an absolute path."""
    return f"file://{quote_from_bytes(os.fsencode(path))}"


def to_path(uri: str) -> str | None:
    """Return the absolute local path of `uri`; None if it has none."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    path = os.fsdecode(unquote_to_bytes(parts.path))
    return path if path.startswith("/") and "\0" not in path else None
