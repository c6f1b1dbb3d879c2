"""JSON-RPC over a terminal or a file, which an event loop cannot wait for: worker threads read and write."""

import os
import select
from typing import BinaryIO

import anyio
from anyio import to_thread

from mcp_toolserver.protocol.stdio.line_streams import LineReader, LineWriter
from mcp_toolserver.protocol.stdio.pipe_transport import LONGEST

_WATCH_SECONDS = 10
"""Timeout of the thread that waits for the reader to close; longer than any caller waits for the thread."""


class FileWriter(LineWriter):
    """Writes one message a line."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._turn = anyio.Lock()

    async def write(self, line: bytes) -> None:
        async with self._turn:
            try:
                await to_thread.run_sync(self._write, line)
            except OSError:
                raise anyio.ClosedResourceError from None

    async def wait_for_reader_gone(self) -> None:
        await to_thread.run_sync(_wait_for_hang_up, self._file.fileno(), abandon_on_cancel=True)

    async def aclose(self) -> None:
        """Nothing to do: every line is flushed, and the process exit closes the descriptor."""

    def _write(self, line: bytes) -> None:
        self._file.write(line)
        self._file.flush()


class FileReader(LineReader):
    """Reads one message a line. On cancellation the thread that waits for a line is abandoned."""

    def __init__(self, file: BinaryIO, writer: FileWriter) -> None:
        super().__init__(writer, LONGEST)
        self._file = file

    async def line(self) -> bytes | None:
        try:
            return await to_thread.run_sync(self._read, abandon_on_cancel=True)
        except OSError:
            # The terminal is gone.
            return b""

    async def aclose(self) -> None:
        """Nothing to do: the thread may be reading, and the process exit closes the descriptor."""

    def _read(self) -> bytes | None:
        line = self._file.readline(self._longest)
        if len(line) < self._longest or line.endswith(b"\n"):
            return line
        while rest := self._file.readline(self._longest):
            if rest.endswith(b"\n"):
                break
        return None


def open_files(source: int, target: int) -> tuple[FileReader, FileWriter]:
    """Streams on two descriptors, which they never close."""
    writer = FileWriter(os.fdopen(target, "wb", closefd=False))
    return FileReader(os.fdopen(source, "rb", closefd=False), writer), writer


def _wait_for_hang_up(descriptor: int) -> None:
    """Wait until a pipe has no reader any more, or a terminal is gone. A file stays readable."""
    poll = select.poll()
    # With an empty event mask, poll reports only hang-ups and errors.
    poll.register(descriptor, 0)
    poll.poll(_WATCH_SECONDS * 1000)
