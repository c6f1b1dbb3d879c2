"""A platform with less than this one has: `python stripped.py PLATFORM ARGUMENTS...` is the server there.

What is missing is taken away before anything of the server is imported. Libraries are imported first, because
they choose by platform too and are right about this one.
"""

import asyncio
import importlib.metadata
import os
import select
import signal
import socket
import sys
import tempfile

import anyio
import anyio._backends._asyncio
import httpx
import mcp.server.lowlevel
import platformdirs
import pydantic
import rich.console

LIBRARIES = (asyncio, importlib.metadata, select, signal, socket, anyio, httpx, mcp.server.lowlevel)
MORE = (platformdirs, pydantic, rich.console)

LINUX_ONLY = (
    *("memfd_create", "O_PATH", "O_TMPFILE", "pipe2", "getxattr", "setxattr", "listxattr", "pidfd_open"),
    *("sched_getaffinity", "posix_fadvise", "waitid", "eventfd", "getrandom"),
)
POSIX_ONLY = (
    *("O_NONBLOCK", "O_NOCTTY", "O_DIRECTORY", "O_CLOEXEC", "O_NOFOLLOW", "fork", "posix_spawn", "setsid"),
    *("POSIX_SPAWN_DUP2", "getuid", "geteuid", "fchown", "fchmod", "mkfifo", "killpg"),
)
POSIX_MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "pty", "tty")


def strip(platform: str) -> None:
    """Make this process look like `platform`: darwin, win32, or bare for a POSIX with nothing more."""
    _remove(LINUX_ONLY)
    # It looked for O_TMPFILE when it was imported.
    tempfile._O_TMPFILE_WORKS = False  # pyright: ignore[reportAttributeAccessIssue]
    if platform in ("bare", "win32"):
        for module in POSIX_MODULES:
            sys.modules.update({module: None})  # type: ignore[dict-item]  # None forbids the import
    if platform == "win32":
        _remove(POSIX_ONLY)
        os.supports_dir_fd.clear()
    sys.platform = "darwin" if platform == "bare" else platform


def _remove(names: tuple[str, ...]) -> None:
    for name in names:
        if hasattr(os, name):
            delattr(os, name)


if __name__ == "__main__":
    strip(platform := sys.argv.pop(1))
    from mcp_toolserver.main import main

    if platform == "darwin":
        from mcp_toolserver.runtime.sandbox.posix import family

        # The `ps` of this machine understands these.
        family._FLAGS = ("e", "S")

    main()
