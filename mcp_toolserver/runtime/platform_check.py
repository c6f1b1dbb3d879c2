"""Checks whether this platform can keep paths inside the roots. Imported before everything that needs it."""

import os
import sys

_FLAGS = ("O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC")
_WITH_DIR_FD = ("open", "stat", "mkdir", "unlink", "rename", "readlink")


def unsupported_reason() -> str | None:
    """Return why the server cannot run on this platform and what to do; None if it can.

    Paths are opened relative to an open folder, so that no link swapped in meanwhile leads out. A check
    before opening a path would be a race that anyone can win.
    """
    able = {function.__name__ for function in os.supports_dir_fd}
    flags = (f"os.{flag}" for flag in _FLAGS if not hasattr(os, flag))
    names = (*flags, *(f"dir_fd of os.{name}" for name in _WITH_DIR_FD if name not in able))
    if not names:
        return None
    return (
        f"{sys.platform} cannot open files relative to an open folder (Python lacks {', '.join(names)} "
        "here), so paths could not be kept inside a root; run the server on Linux or macOS, or on Windows "
        "in WSL 2"
    )
