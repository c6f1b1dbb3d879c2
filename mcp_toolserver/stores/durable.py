"""Makes data survive a loss of power."""

import os
import sys
from collections.abc import Callable

_F_FULLFSYNC = 51
"""From <sys/fcntl.h> of macOS."""


def sync(descriptor: int, control: Callable[[int, int], object] | None = None) -> None:
    """Return when the file or folder open as `descriptor` is on the disk.

    On macOS fsync(2) leaves data in the cache of the disk, and F_FULLFSYNC of fcntl(2) flushes it. Volumes
    that do not support that, such as some of other systems and of the network, get fsync. `control` is
    `fcntl.fcntl`.

    Raises:
        OSError: it could not be written.
    """
    if sys.platform == "darwin":
        try:
            # Only POSIX systems have this module.
            import fcntl

            (control or fcntl.fcntl)(descriptor, _F_FULLFSYNC)
        except (ImportError, OSError):
            pass
        else:
            return
    os.fsync(descriptor)
