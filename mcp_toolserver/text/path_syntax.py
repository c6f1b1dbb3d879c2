"""Rejects paths by their syntax alone. The kernel decides whether a path is inside a root."""

MAX_COMPONENT = 255
"""Bytes; the limit of every common Linux file system."""


def lies_in(folder: str, path: str) -> bool:
    """Whether the absolute `path` is `folder`, or lies in it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def check_spelling(path: str) -> str:
    """Check that a file can have this name; return `path` unchanged.

    A path is taken as written: no URL decoding, no `~`, no Unicode folding.

    Raises:
        ValueError: control characters, lone surrogates, or a component over 255 bytes.
    """
    if not path.isprintable():
        _refuse_unprintable(path)
    if len(path) * 4 > MAX_COMPONENT and any(len(part.encode()) > MAX_COMPONENT for part in path.split("/")):
        raise ValueError(f"no part of a path may be over {MAX_COMPONENT} bytes; shorten the name")
    return path


def _refuse_unprintable(path: str) -> None:
    """Refuse unprintable characters, except those that names may contain, such as rare spaces."""
    if any(ord(c) < 32 or ord(c) == 127 for c in path):
        raise ValueError("a path cannot hold control characters; send the plain path")
    if any(0xD800 <= ord(c) <= 0xDFFF for c in path):
        raise ValueError("a path cannot hold half of a surrogate pair; send valid Unicode")
