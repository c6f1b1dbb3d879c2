"""JSON-RPC over pipes in the event loop. The SDK's stdio transport passes every line through worker threads,
which takes half the time of a small call.

Both streams keep the SDK's contract: the reader ends with the input, and the writer waits while the client
does not read.
"""

import asyncio
import os
import stat
from collections.abc import Callable

import anyio

from mcp_toolserver.protocol.stdio.line_streams import LineReader, LineWriter

LONGEST = 64 * 1024 * 1024
"""Maximum bytes of one message. A file of 10 MiB can take six times that as JSON."""


class PipeWriter(LineWriter):
    """Writes one message a line."""

    def __init__(self, writer: asyncio.StreamWriter, reader_gone: anyio.Event) -> None:
        self._writer = writer
        self._reader_gone = reader_gone
        # `drain` returns when all of a message is in the pipe; a buffered rest would be lost at exit.
        writer.transport.set_write_buffer_limits(high=0)

    async def write(self, line: bytes) -> None:
        self._writer.write(line)
        try:
            await self._writer.drain()
        except ConnectionError:
            raise anyio.ClosedResourceError from None

    async def wait_for_reader_gone(self) -> None:
        await self._reader_gone.wait()

    async def aclose(self) -> None:
        self._writer.transport.close()


class PipeReader(LineReader):
    """Reads one message a line."""

    def __init__(
        self, transport: asyncio.BaseTransport, reader: asyncio.StreamReader, writer: PipeWriter
    ) -> None:
        super().__init__(writer, LONGEST)
        self._transport = transport
        self._reader = reader

    async def line(self) -> bytes | None:
        too_long = False
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError as end:
                return None if too_long else end.partial
            except asyncio.LimitOverrunError as overrun:
                too_long = True
                await self._reader.readexactly(overrun.consumed)
            else:
                return None if too_long else line

    async def aclose(self) -> None:
        self._transport.close()


def are_pipes(*descriptors: int) -> bool:
    """Whether all are pipes or sockets, which an event loop can wait for, and none is standard error.

    A file that is also standard error must stay blocking.
    """
    states = [os.fstat(descriptor) for descriptor in descriptors]
    errors = os.fstat(2)
    return all(
        (stat.S_ISFIFO(state.st_mode) or stat.S_ISSOCK(state.st_mode)) and not os.path.samestat(state, errors)
        for state in states
    )


_LARGE_BLOCK = 1 << 20


class _Sending(asyncio.streams.FlowControlMixin):
    """The pipe to the client. Calls `lost` when the client closes it."""

    def __init__(self, lost: Callable[[], None]) -> None:
        super().__init__()
        self._lost = lost

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._lost()


async def open_pipes(source: int, target: int) -> tuple[PipeReader, PipeWriter]:
    """Streams on two descriptors, which they own.

    When the client closes the pipe that it reads from, the input ends too.
    """
    # asyncio allocates 256 KiB for every read. glibc maps and unmaps that each time, which takes a tenth of a
    # small call, until one larger block was freed: that raises its threshold for mmap.
    bytes(_LARGE_BLOCK)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=LONGEST)
    receiving, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(source, "rb", buffering=0)
    )
    reader_gone = anyio.Event()

    def lost() -> None:
        reader_gone.set()
        receiving.close()

    sending, protocol = await loop.connect_write_pipe(
        lambda: _Sending(lost), os.fdopen(target, "wb", buffering=0)
    )
    writer = PipeWriter(asyncio.StreamWriter(sending, protocol, None, loop), reader_gone)
    return PipeReader(receiving, reader, writer), writer
