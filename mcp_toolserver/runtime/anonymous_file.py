"""Files without a name, to give a program more input than a pipe holds."""

import os
import sys


def anonymous_file(name: str) -> int:
    """Return a new empty file without a name, open for reading and writing; the caller closes it.

    Linux: in memory, and `name` shows in /proc. Elsewhere: a file of mode 0600 in the folder for temporary
    files, which is unlinked at once.

    Raises:
        OSError: no file can be created.
    """
    if sys.platform == "linux":
        return os.memfd_create(name)
    # It imports much, which a start on Linux is spared.
    import tempfile

    with tempfile.TemporaryFile(prefix="mcp-toolserver-") as file:
        return os.dup(file.fileno())
