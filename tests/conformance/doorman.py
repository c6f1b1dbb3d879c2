"""A way in for programs that cannot send a token: it puts one into each request, and changes nothing else.

The gate behind it stays what it is in use. Each connection carries one request, so only its head is read.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

_END = b"\r\n\r\n"


@asynccontextmanager
async def doorman(outside: socket.socket, inside: int, token: str) -> AsyncGenerator[None]:
    """Lead whoever comes to the socket `outside` on to the port `inside`."""
    server = await asyncio.start_server(_Doorman(port=inside, token=token).admit, sock=outside)
    async with server:
        yield


@dataclass(frozen=True, kw_only=True)
class _Doorman:
    port: int
    token: str

    async def admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one request in, and the answer out, until either side has ended."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(_END)
            answer, inside = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                inside.write(self._with_token(head))
                await _until_one_ends(_relay(reader, inside), _relay(answer, writer))
            finally:
                inside.close()
        writer.close()

    def _with_token(self, head: bytes) -> bytes:
        lines = head.removesuffix(_END).split(b"\r\n")
        kept = [line for line in lines if not line.lower().startswith(b"connection:")]
        added = (b"Connection: close", b"Authorization: Bearer " + self.token.encode())
        return b"\r\n".join((*kept, *added)) + _END


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
