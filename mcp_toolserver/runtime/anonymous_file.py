"""Files without a name, to give a program more input than a pipe holds."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager


def anonymous_file(name: str, content: bytes = b"") -> int:
    """Return a new file without a name that holds `content`, open at its start for reading and writing; the
    caller closes it.

    Linux: in memory, and `name` shows in /proc. Elsewhere: a file of mode 0600 in the folder for temporary
    files, which is unlinked at once.

    Raises:
        OSError: no file can be created.
    """
    if sys.platform == "linux":
        file = os.memfd_create(name)
    else:
        # It imports much, which a start on Linux is spared.
        import tempfile

        with tempfile.TemporaryFile(prefix="mcp-toolserver-") as opened:
            file = os.dup(opened.fileno())
    try:
        with os.fdopen(file, "wb", closefd=False) as stream:
            stream.write(content)
            stream.seek(0)
    except OSError:
        os.close(file)
        raise
    return file


@contextmanager
def opened_content(name: str, content: bytes) -> Generator[int]:
    """An anonymous file with `content`, until the end of the block."""
    file = anonymous_file(name, content)
    try:
        yield file
    finally:
        os.close(file)
