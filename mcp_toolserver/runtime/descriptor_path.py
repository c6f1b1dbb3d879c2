"""The path of an open folder."""

import os
import sys

_F_GETPATH = 50
"""From <sys/fcntl.h> of macOS; Python has the constant there only."""

_MAXPATHLEN = 1024
"""Bytes that F_GETPATH needs at least (fcntl(2) of macOS)."""


def descriptor_path(descriptor: int) -> str:
    """Return the absolute path that the folder open as `descriptor` has now.

    Linux: the link in /proc/self/fd. macOS: fcntl F_GETPATH.

    Raises:
        OSError: the system cannot tell, or the folder has been removed.
    """
    if sys.platform == "linux":
        path = os.readlink(f"/proc/self/fd/{descriptor}")
    else:
        # Only POSIX systems have this module.
        import fcntl

        path = os.fsdecode(fcntl.fcntl(descriptor, _F_GETPATH, bytes(_MAXPATHLEN)).split(b"\0")[0])
    # Linux names a removed folder so, and another may have that name. Only then is it looked at: the path of
    # a folder in the mount namespace of a session leads nowhere for the server.
    if path.endswith(" (deleted)") and not os.path.samestat(os.lstat(path), os.fstat(descriptor)):
        raise FileNotFoundError(f"{path} is another folder now")
    return path
