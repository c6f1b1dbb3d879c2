"""Serving one client over standard input and output.

While serving, descriptor 0 is the null device and descriptor 1 is standard error, so that nothing but
JSON-RPC can reach the client.
"""

import os
import sys
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.runner import serve_loop
from mcp.server.stdio import stdio_server

from mcp_toolserver.protocol import pipes

HINT = (
    "mcp-toolserver: waiting for an MCP client on standard input. "
    "Run `mcp-toolserver demo` to see it work, or --help for more; Ctrl-C ends it."
)


async def serve_stdio(server: Server[Any]) -> None:
    """Serve until the client closes standard input."""
    options = server.create_initialization_options()
    if pipes.are_pipes(0, 1):
        reader, writer = await pipes.over(*_claim())
        if await reader.opens_with_handshake():
            # The loop for this era alone spares every message a detour through another task.
            async with server.lifespan(server) as state:
                await serve_loop(server, reader, writer, lifespan_state=state, init_options=options)
        else:
            await server.run(reader, writer, options)
        return
    if sys.stdin.isatty():
        sys.stderr.write(HINT + "\n")
    async with stdio_server() as (read, write):
        await server.run(read, write, options)


def _claim() -> tuple[int, int]:
    """The client's ends, where no stray print and no program that we start finds them."""
    source, target = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return source, target
