"""Ends a search or git command that waits for a named pipe in the place of an ignore file or a file of git.

ripgrep and git open these files by themselves, and opening a pipe that nobody writes into never returns. No
sandbox refuses pipes only, and looking for them before each call would take as long as a search. So the
server looks for them once a call takes long.
"""

import os
import stat
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from anyio import create_task_group, sleep

from mcp_toolserver.errors import ToolError, Unavailable
from mcp_toolserver.runtime.descriptor_path import descriptor_path

FIRST_LOOK = 2.0
"""Seconds until the first look; each further one comes after twice as long."""

_NAMES = frozenset({".gitignore", ".ignore", ".rgignore", ".gitattributes", ".gitmodules", ".mailmap"})


@asynccontextmanager
async def ended_by_pipes(
    folder: int,
    in_thread: Callable[[Callable[[], str]], Awaitable[str]],
    shown: Callable[[str], str] = lambda path: path,
) -> AsyncGenerator[None]:
    """Cancel the body when it takes long and there is such a pipe in the folder open as `folder`, or in the
    `.git` of a folder above.

    `in_thread` runs what may hang in a thread, and leaves it there. `shown` turns a path from the folder, or
    an absolute one, into what the error names.

    Raises:
        Unavailable: there is one.
    """
    is_over, found, failure = threading.Event(), "", None

    async def look() -> None:
        nonlocal found
        wait = FIRST_LOOK
        while not found:
            await sleep(wait)
            with suppress(ToolError):
                found = await in_thread(lambda: _find(folder, is_over))
            wait *= 2
        group.cancel_scope.cancel()

    try:
        async with create_task_group() as group:
            group.start_soon(look)
            try:
                yield
            except ToolError as error:
                # As it is, not in an exception group.
                failure = error
            group.cancel_scope.cancel()
    finally:
        is_over.set()
    if found:
        raise Unavailable(
            f"'{shown(found)}' is a named pipe or leads to one, and who reads it waits forever. Remove it, or "
            "ask the user to, and try again."
        )
    if failure is not None:
        raise failure


def _find(folder: int, is_over: threading.Event) -> str:
    """Return the path of such a pipe; empty if there is none, or nobody waits for the answer any more."""
    with suppress(OSError):
        above = descriptor_path(folder)
        # A path by name may lead nowhere for the server, or elsewhere by now.
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
