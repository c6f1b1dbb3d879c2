"""Programs of our own choosing, such as ripgrep, run by the broker."""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio.lowlevel

from mcp_toolserver.errors import Unavailable
from mcp_toolserver.runtime.named_pipes import find_pipe
from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.child import Child, PipeReader, read_chunk
from mcp_toolserver.runtime.processes.launcher import Exit, Running
from mcp_toolserver.runtime.processes.spawn import Spawned, spawn
from mcp_toolserver.runtime.sandbox.broker.messages import Program

MAX_STDERR = 64 << 10
"""Bytes of standard error that are kept."""

FIRST_LOOK = 2.0
"""Seconds after which a program is suspected to wait for a named pipe."""

END_SECONDS = 5.0
"""How long leaving waits for the supervisor's word that all is gone."""


class Programs:
    """Implements `Launcher`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def open(
        self, argv: Sequence[str], *, cwd: int, stdin: int | None = None, timeout: float
    ) -> AbstractAsyncContextManager[Running]:
        """See `Launcher.open`."""
        return self.start(Program(argv=tuple(argv), timeout=timeout), cwd=cwd, stdin=stdin)

    def start(
        self, program: Program, *, cwd: int, stdin: int | None = None
    ) -> AbstractAsyncContextManager[Running]:
        """The same for a program with more than arguments."""
        return self._opened(program, cwd, stdin)

    @asynccontextmanager
    async def _opened(self, program: Program, cwd: int, stdin: int | None) -> AsyncGenerator[Running, None]:
        running = _Program(spawn(self._broker, program, cwd=cwd, stdin=stdin, separate_stderr=True))
        is_over = threading.Event()
        # Nothing waits for this thread: looking at folders may hang.
        thread = threading.Thread(target=running.look_for_pipes, args=(cwd, is_over), daemon=True)
        look = asyncio.get_running_loop().call_later(FIRST_LOOK, thread.start)
        try:
            await running.child.started()
            yield running
        finally:
            look.cancel()
            is_over.set()
            await running.end()


class _Program:
    """Implements `Running`."""

    def __init__(self, spawned: Spawned) -> None:
        self._output = spawned.output
        self._stderr = bytearray()
        assert spawned.errors is not None
        self._errors = PipeReader(spawned.errors, self._add_stderr)
        self.child = Child(spawned.control, self._errors.finish)
        self._loop = asyncio.get_running_loop()
        self._pipe = ""

    async def chunks(self) -> AsyncIterator[bytes]:
        """See `Running.chunks`."""
        while data := await read_chunk(self._output):
            yield data
            await anyio.lowlevel.checkpoint()

    async def wait(self) -> Exit:
        """See `Running.wait`."""
        found = await self.child.wait()
        if self._pipe:
            raise Unavailable(
                f"'{self._pipe}' is a named pipe or leads to one: reading it waits forever. Remove it, or "
                "ask the user to, and try again."
            )
        return found

    def stderr(self) -> bytes:
        """See `Running.stderr`."""
        return bytes(self._stderr)

    def look_for_pipes(self, folder: int, is_over: threading.Event) -> None:
        """Stop the program if it waits for a named pipe in the open `folder`; look again after twice as long,
        until `is_over`."""
        wait = FIRST_LOOK
        while not (found := find_pipe(folder, is_over)) and not is_over.wait(wait):
            wait *= 2
        if found and not is_over.is_set():
            self._pipe = found
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.child.stop)

    async def end(self) -> None:
        """Kill it, if it still runs, and let go of it."""
        await self.child.end(END_SECONDS)
        self._errors.close()
        os.close(self._output)

    def _add_stderr(self, data: bytes) -> None:
        self._stderr += data[: MAX_STDERR - len(self._stderr)]
