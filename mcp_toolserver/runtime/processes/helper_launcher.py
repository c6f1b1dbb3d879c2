"""Programs of our own choosing, such as ripgrep, run by the broker."""

import os
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio.lowlevel

from mcp_toolserver.runtime.broker import Broker
from mcp_toolserver.runtime.child import Child, Drain, piece
from mcp_toolserver.runtime.launch import Exit, Running
from mcp_toolserver.runtime.sandbox.wire import Program
from mcp_toolserver.runtime.spawn import Spawned, spawn

COMPLAINTS = 64 << 10
"""Bytes of standard error that are kept."""

END_SECONDS = 5.0
"""How long leaving waits for the nanny's word that all is gone."""


class Programs:
    """Implements `Launcher`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def open(
        self,
        argv: Sequence[str],
        *,
        cwd: int,
        stdin: int | None = None,
        timeout: float,
        environment: Sequence[tuple[str, str]] = (),
    ) -> AbstractAsyncContextManager[Running]:
        """See `Launcher.open`; for git, `environment` is `Program.environment`."""
        program = Program(argv=tuple(argv), timeout=timeout, environment=tuple(environment))
        return self._opened(program, cwd, stdin)

    @asynccontextmanager
    async def _opened(self, program: Program, cwd: int, stdin: int | None) -> AsyncGenerator[Running, None]:
        running = _Program(spawn(self._broker, program, cwd=cwd, stdin=stdin, apart=True))
        try:
            await running.child.started()
            yield running
        finally:
            await running.end()


class _Program:
    """Implements `Running`."""

    def __init__(self, spawned: Spawned) -> None:
        self._output = spawned.output
        self._complaints = bytearray()
        assert spawned.errors is not None
        self._errors = Drain(spawned.errors, self._complain)
        self.child = Child(spawned.control, self._errors.finish)

    async def chunks(self) -> AsyncIterator[bytes]:
        """See `Running.chunks`."""
        while data := await piece(self._output):
            yield data
            await anyio.lowlevel.checkpoint()

    async def wait(self) -> Exit:
        """See `Running.wait`."""
        return await self.child.wait()

    def complaints(self) -> bytes:
        """See `Running.complaints`."""
        return bytes(self._complaints)

    async def end(self) -> None:
        """Kill it, if it still runs, and let go of it."""
        await self.child.end(END_SECONDS)
        self._errors.close()
        os.close(self._output)

    def _complain(self, data: bytes) -> None:
        self._complaints += data[: COMPLAINTS - len(self._complaints)]
