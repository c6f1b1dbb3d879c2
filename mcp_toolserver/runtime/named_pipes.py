"""Finds the named pipe that ripgrep or git waits for, in the place of an ignore file or a file of git.

Both open such files by themselves, and opening a pipe that nobody writes into never returns. No sandbox
refuses pipes only, and looking for them before each call would take as long as a search.
"""

import os
import stat
import sys
import threading
from contextlib import suppress

from mcp_toolserver.runtime.descriptor_path import descriptor_path

_NAMES = frozenset({".gitignore", ".ignore", ".rgignore", ".gitattributes", ".gitmodules", ".mailmap"})


def find_pipe(folder: int, is_over: threading.Event) -> str:
    """Return the path of such a pipe in the folder open as `folder`, from there, or in the `.git` of a folder
    above; empty if there is none, or `is_over` before it is found."""
    with suppress(OSError):
        above = descriptor_path(folder)
        # By its name a folder of a session's /tmp cannot be reached.
        top = f"/proc/self/fd/{folder}" if sys.platform == "linux" else above
        waiting = [top]
        while (above := os.path.dirname(above)) != "/":
            waiting.append(f"{above}/.git")
        while waiting and not is_over.is_set():
            with suppress(OSError), os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif (entry.name in _NAMES or "/.git/" in entry.path) and _is_pipe(entry):
                        return entry.path.removeprefix(f"{top}/")
    return ""


def _is_pipe(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):
        return stat.S_ISFIFO(entry.stat().st_mode)
    return False
