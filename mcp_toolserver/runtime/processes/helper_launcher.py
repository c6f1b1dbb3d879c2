"""Programs of our own choosing, such as ripgrep, run by the broker."""

import os
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio.lowlevel

from mcp_toolserver.runtime.processes.broker_client import Broker
from mcp_toolserver.runtime.processes.child import Child, PipeReader, read_chunk
from mcp_toolserver.runtime.processes.launcher import Exit, Running
from mcp_toolserver.runtime.processes.spawn import Spawned, spawn
from mcp_toolserver.runtime.sandbox.broker.messages import Program

MAX_STDERR = 64 << 10
"""Bytes of standard error that are kept."""

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
        try:
            await running.child.started()
            yield running
        finally:
            await running.end()


class _Program:
    """Implements `Running`."""

    def __init__(self, spawned: Spawned) -> None:
        self._output = spawned.output
        self._stderr = bytearray()
        assert spawned.errors is not None
        self._errors = PipeReader(spawned.errors, self._add_stderr)
        self.child = Child(spawned.control, self._errors.finish)

    async def chunks(self) -> AsyncIterator[bytes]:
        """See `Running.chunks`."""
        while data := await read_chunk(self._output):
            yield data
            await anyio.lowlevel.checkpoint()

    async def wait(self) -> Exit:
        """See `Running.wait`."""
        return await self.child.wait()

    def stderr(self) -> bytes:
        """See `Running.stderr`."""
        return bytes(self._stderr)

    async def end(self) -> None:
        """Kill it, if it still runs, and let go of it."""
        await self.child.end(END_SECONDS)
        self._errors.close()
        os.close(self._output)

    def _add_stderr(self, data: bytes) -> None:
        self._stderr += data[: MAX_STDERR - len(self._stderr)]
