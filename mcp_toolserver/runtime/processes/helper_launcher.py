"""Programs of our own choosing, such as ripgrep, run by the broker.

ripgrep and git open ignore files and files of git by themselves, and opening a named pipe in their place that
nobody writes into never returns. No sandbox refuses pipes only, and looking for them before each call would
take as long as a search. So they are looked for where a program takes long.
"""

import asyncio
import contextlib
import os
import stat
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio.lowlevel

from mcp_toolserver.errors import Unavailable
from mcp_toolserver.runtime.descriptor_path import descriptor_path
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.child import Exit, spawn
from mcp_toolserver.runtime.processes.interactive import MAX_STDERR, InteractiveProcess
from mcp_toolserver.runtime.sandbox.broker.messages import Program

FIRST_LOOK = 2.0
"""Seconds after which a program is suspected to wait for a named pipe."""

_NAMES = frozenset({".gitignore", ".ignore", ".rgignore", ".gitattributes", ".gitmodules", ".mailmap"})


class Programs:
    """Starts programs of our own choosing (never a command from a model), whose output the caller reads."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def open(
        self, argv: Sequence[str], *, cwd: int, stdin: int | None = None, timeout: float
    ) -> AbstractAsyncContextManager["Running"]:
        """Start `argv` (absolute program path) in the folder open as descriptor `cwd`.

        Standard input is descriptor `stdin`, or empty. After `timeout` seconds the program is killed. Leaving
        the context kills it with all it started.

        Raises:
            Unavailable: the broker is gone or the program cannot be started.
        """
        return self.start(Program(argv=tuple(argv), timeout=timeout), cwd=cwd, stdin=stdin)

    @asynccontextmanager
    async def start(
        self, program: Program, *, cwd: int, stdin: int | None = None
    ) -> AsyncGenerator["Running", None]:
        """The same for a program with more than arguments."""
        running = Running(spawn(self._broker, program, cwd=cwd, stdin=stdin, separate_stderr=True))
        is_over, loop = threading.Event(), asyncio.get_running_loop()
        # Nothing waits for this thread: looking at folders may hang.
        thread = threading.Thread(target=running.look_for_pipes, args=(cwd, is_over, loop), daemon=True)
        look = loop.call_later(FIRST_LOOK, thread.start)
        try:
            await running.child.started()
            yield running
        finally:
            look.cancel()
            is_over.set()
            await running.end()


class Running(InteractiveProcess):
    """A program that runs under its own supervisor."""

    _pipe = ""

    async def chunks(self) -> AsyncIterator[bytes]:
        """Its standard output as it comes, at most 1 MiB at a time."""
        while data := await self.read():
            yield data
            await anyio.lowlevel.checkpoint()

    async def wait(self) -> Exit:
        """Returns when it and everything it started is gone. Raises: Unavailable: a named pipe stopped it."""
        found = await self.child.wait()
        if self._pipe:
            raise Unavailable(
                f"'{self._pipe}' is a named pipe or leads to one: reading it waits forever. Remove it, or "
                "ask the user to, and try again."
            )
        return found

    def look_for_pipes(self, folder: int, is_over: threading.Event, loop: asyncio.AbstractEventLoop) -> None:
        """Stop the program if it waits for a named pipe in the open `folder`; look again after twice as long,
        until `is_over`."""
        wait = FIRST_LOOK
        while not (found := _find_pipe(folder, is_over)) and not is_over.wait(wait):
            wait *= 2
        if found and not is_over.is_set():
            self._pipe = found
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self.child.stop)

    def _add_stderr(self, data: bytes) -> None:
        """Keep the first 64 KiB, not the last."""
        self._stderr += data[: MAX_STDERR - len(self._stderr)]


def _find_pipe(folder: int, is_over: threading.Event) -> str:
    """Return the path of a named pipe in the place of an ignore file or a file of git in the folder open as
    `folder`, from there, or in the `.git` of a folder above; empty if there is none, or `is_over` before it
    is found."""
    with contextlib.suppress(OSError):
        above = descriptor_path(folder)
        # By its name a folder of a session's /tmp cannot be reached.
        top = f"/proc/self/fd/{folder}" if sys.platform == "linux" else above
        waiting = [top]
        while (above := os.path.dirname(above)) != "/":
            waiting.append(f"{above}/.git")
        while waiting and not is_over.is_set():
            with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif (entry.name in _NAMES or "/.git/" in entry.path) and _is_pipe(entry):
                        return entry.path.removeprefix(f"{top}/")
    return ""


def _is_pipe(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISFIFO(entry.stat().st_mode)
    return False
