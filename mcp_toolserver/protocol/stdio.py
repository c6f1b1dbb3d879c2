"""Serving one client over standard input and output.

While serving, descriptor 0 is the null device and descriptor 1 is standard error, so that nothing but
JSON-RPC can reach the client.
"""

import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TextIO

import anyio
from mcp.server import runner
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server

from mcp_toolserver.protocol import pipes
from mcp_toolserver.protocol.quota import Allowance, Quota
from mcp_toolserver.protocol.traffic import Incoming, Outgoing, Traffic

HINT = (
    "mcp-toolserver: waiting for an MCP client on standard input. "
    "Run `mcp-toolserver demo` to see it work, or --help for more; Ctrl-C ends it."
)


_MODERN_LOOP: Callable[..., Awaitable[None]] | None = getattr(runner, "_serve_modern_stream", None)
"""The SDK's loop for clients without a handshake, which it has no public name for; without it, the loop for
both eras serves them."""


async def serve_stdio(server: Server[Any], allowance: Allowance, ended: Callable[[], None]) -> None:
    """Serve until the client closes standard input; then `ended` is called, before calls are cancelled."""
    # There is one client, which may have all that there is.
    traffic = Traffic(Quota(replace(allowance, of_one=allowance.requests)), client="")
    options = server.create_initialization_options()
    if pipes.are_pipes(0, 1):
        reader, writer = await pipes.over(*_claim(), ended)
        streams = Incoming(reader, writer, traffic), Outgoing(writer, traffic)
        # The loop for one era alone spares every message a detour through another task.
        match await reader.opening():
            case "handshake":
                async with server.lifespan(server) as state:
                    await serve_loop(server, *streams, lifespan_state=state, init_options=options)
            case "envelope" if _MODERN_LOOP is not None:
                async with server.lifespan(server) as state, writer:
                    await _MODERN_LOOP(server, *streams, lifespan_state=state, raise_exceptions=False)
            case _:
                await server.run(*streams, options)
        return
    if sys.stdin.isatty():
        sys.stderr.write(HINT + "\n")
    source, target = _claim()
    lines = _Lines(os.fdopen(source, encoding="utf-8", errors="replace"), ended)
    answers = _Answers(os.fdopen(target, "w", encoding="utf-8"))
    async with stdio_server(lines, answers) as (read, write):
        await server.run(Incoming(read, write, traffic), Outgoing(write, traffic), options)


class _Lines(anyio.AsyncFile[str]):
    """What a terminal or a file says. The thread that waits for a line is left alone at the end, where the
    SDK would wait for that line first."""

    def __init__(self, file: TextIO, ended: Callable[[], None]) -> None:
        super().__init__(file)
        self._ended = ended

    async def readline(self) -> str:
        try:
            line = await anyio.to_thread.run_sync(self.wrapped.readline, abandon_on_cancel=True)
        except OSError:
            # The terminal is gone.
            line = ""
        if not line:
            self._ended()
        return line


class _Answers(anyio.AsyncFile[str]):
    """What a terminal or a file is told.

    Raises:
        anyio.ClosedResourceError: it is gone.
    """

    async def write(self, b: str) -> int:
        try:
            return await super().write(b)
        except OSError:
            raise anyio.ClosedResourceError from None

    async def flush(self) -> None:
        try:
            await super().flush()
        except OSError:
            raise anyio.ClosedResourceError from None


def _claim() -> tuple[int, int]:
    """The client's ends, where no stray print and no program that we start finds them."""
    source, target = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return source, target
