"""A way in for programs that cannot send a token: it puts one into each request, and changes nothing else.

The gate behind it stays what it is in use. Each connection carries one request, so only its head is read.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

_END = b"\r\n\r\n"


@asynccontextmanager
async def doorman(outside: socket.socket, inside: int, token: str) -> AsyncGenerator[None]:
    """Lead whoever comes to the socket `outside` on to the port `inside`."""

    async def admit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one request in, and the answer out, until either side has ended."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(_END)
            answer, target = await asyncio.open_connection("127.0.0.1", inside)
            try:
                target.write(_with_token(head, token))
                await _until_one_ends(_relay(reader, target), _relay(answer, writer))
            finally:
                target.close()
        writer.close()

    async with await asyncio.start_server(admit, sock=outside):
        yield


def _with_token(head: bytes, token: str) -> bytes:
    lines = head.removesuffix(_END).split(b"\r\n")
    kept = [line for line in lines if not line.lower().startswith(b"connection:")]
    return b"\r\n".join((*kept, b"Connection: close", b"Authorization: Bearer " + token.encode())) + _END


async def _relay(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while chunk := await source.read(65536):
            target.write(chunk)
            await target.drain()


async def _until_one_ends(*ways: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
