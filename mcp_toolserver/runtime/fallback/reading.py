"""Regular files read whole, and what of them is text."""

import codecs
import errno
import os
import stat

MAX_FILE = 64 << 20
"""Bytes; a larger file is reported and left out."""

# A FIFO would keep an opener waiting without O_NONBLOCK.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def content(folder: int, name: str) -> bytes:
    """The content of a regular file; nothing of anything else."""
    with os.fdopen(os.open(name, _FILE, dir_fd=folder), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            return b""
        if status.st_size > MAX_FILE:
            raise too_large()
        return file.read()


def too_large() -> OSError:
    """What is said of a file over the limit."""
    return OSError(errno.EFBIG, os.strerror(errno.EFBIG))


def text_of(data: bytes) -> str | None:
    """The text of a file, without a byte order mark; None for a binary one."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    if b"\0" in data:
        return None
    return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")
