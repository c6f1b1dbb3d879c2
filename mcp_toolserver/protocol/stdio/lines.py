"""Lines over pipes, terminals and files, whatever they say. Without the SDK, for commands that need none.

Pipes are read and written in the event loop. The SDK's stdio transport passes every line through worker
threads, which takes half the time of a small call.
"""

import asyncio
import os
import select
import stat
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

import anyio
from anyio import to_thread

LONGEST = 64 * 1024 * 1024
"""Maximum bytes of one message. A file of 10 MiB can take six times that as JSON."""

_WATCH_SECONDS = 10
"""Timeout of the thread that waits for the reader to close; longer than any caller waits for the thread."""

HINT = (
    "mcp-toolserver: waiting for an MCP client on standard input, which is a terminal; Ctrl-C ends it.\n"
    "To add this server to a client: mcp-toolserver setup CLIENT (setup --list shows the clients).\n"
    "To see it work: mcp-toolserver demo"
)


@dataclass(frozen=True)
class Lines:
    """The two streams of a client."""

    read: Callable[[], Awaitable[bytes | None]]
    """Returns the next line; b"" at the end of input; None for a line that is too long."""
    write: Callable[[bytes], Awaitable[None]]
    """Writes a line; returns once all of it is written. Raises: anyio.ClosedResourceError: the client stopped
    reading."""
    wait_for_reader_gone: Callable[[], Awaitable[object]]
    """Returns when the client closed its end."""
    close_input: Callable[[], None] = lambda: None
    close_output: Callable[[], None] = lambda: None


async def standard_lines() -> Lines:
    """The client's two streams: in the event loop where it can wait for them, else with threads."""
    if are_pipes(0, 1):
        return await open_pipes(*_claim())
    if sys.stdin.isatty():
        sys.stderr.write(HINT + "\n")
    return open_files(*_claim())


def _claim() -> tuple[int, int]:
    """Move the client's descriptors to where no stray print and no child process finds them."""
    source, target = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return source, target


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


class _Sending(asyncio.streams.FlowControlMixin):
    """The pipe to the client. Calls `lost` when the client closes it."""

    def __init__(self, lost: Callable[[], None]) -> None:
        super().__init__()
        self._lost = lost

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._lost()


async def open_pipes(source: int, target: int) -> Lines:
    """Lines on two pipes or sockets, which they own, in the event loop.

    When the client closes the pipe that it reads from, the input ends too.
    """
    # asyncio allocates 256 KiB for every read. glibc maps and unmaps that each time, which takes a tenth of a
    # small call, until one larger block was freed: that raises its threshold for mmap.
    bytes(1 << 20)
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
    # `drain` returns when all of a message is in the pipe; a buffered rest would be lost at exit.
    sending.set_write_buffer_limits(high=0)
    stream = asyncio.StreamWriter(sending, protocol, None, loop)

    async def write(line: bytes) -> None:
        stream.write(line)
        try:
            await stream.drain()
        except ConnectionError:
            raise anyio.ClosedResourceError from None

    return Lines(partial(_line_of_pipe, reader), write, reader_gone.wait, receiving.close, sending.close)


async def _line_of_pipe(reader: asyncio.StreamReader) -> bytes | None:
    too_long = False
    while True:
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as end:
            return None if too_long else end.partial
        except asyncio.LimitOverrunError as overrun:
            too_long = True
            await reader.readexactly(overrun.consumed)
        else:
            return None if too_long else line


def open_files(source: int, target: int) -> Lines:
    """Lines on two descriptors, with worker threads, because an event loop cannot wait for a terminal or a
    file.

    They never close the descriptors, because a thread may be reading; the process exit does.
    """
    requests, answers = (os.fdopen(source, "rb", closefd=False), os.fdopen(target, "wb", closefd=False))
    turn = anyio.Lock()

    def write_now(line: bytes) -> None:
        answers.write(line)
        answers.flush()

    async def write(line: bytes) -> None:
        async with turn:
            try:
                await to_thread.run_sync(write_now, line)
            except OSError:
                raise anyio.ClosedResourceError from None

    async def line() -> bytes | None:
        try:
            return await to_thread.run_sync(_line_of_file, requests, abandon_on_cancel=True)
        except OSError:
            # The terminal is gone.
            return b""

    return Lines(line, write, lambda: to_thread.run_sync(_wait_for_hang_up, target, abandon_on_cancel=True))


def _line_of_file(file: BinaryIO) -> bytes | None:
    line = file.readline(LONGEST)
    if len(line) < LONGEST or line.endswith(b"\n"):
        return line
    while rest := file.readline(LONGEST):
        if rest.endswith(b"\n"):
            break
    return None


def _wait_for_hang_up(descriptor: int) -> None:
    """Wait until a pipe has no reader any more, or a terminal is gone. A file stays readable."""
    poll = select.poll()
    # With an empty event mask, poll reports only hang-ups and errors.
    poll.register(descriptor, 0)
    poll.poll(_WATCH_SECONDS * 1000)
