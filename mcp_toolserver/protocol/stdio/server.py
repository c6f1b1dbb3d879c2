"""Serving one client over standard input and output.

While serving, descriptor 0 is the null device and descriptor 1 is standard error, so a stray print cannot
corrupt the JSON-RPC stream.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mcp.server.lowlevel import Server
from mcp_types import JSONRPCRequest

from mcp_toolserver.protocol.counted_streams import ConnectionStats, Incoming, Outgoing
from mcp_toolserver.protocol.rate_limit import ConcurrencyLimiter, RequestLimits
from mcp_toolserver.protocol.stdio import pipe_transport
from mcp_toolserver.protocol.stdio.draining import Draining
from mcp_toolserver.protocol.stdio.line_streams import LineReader, LineWriter

HINT = (
    "mcp-toolserver: waiting for an MCP client on standard input, which is a terminal; Ctrl-C ends it.\n"
    "To add this server to a client: mcp-toolserver setup CLIENT (setup --list shows the clients).\n"
    "To see it work: mcp-toolserver demo"
)


async def serve_stdio(
    server: Server[Any],
    limits: RequestLimits,
    reads: Callable[[JSONRPCRequest], bool],
    ended: Callable[[], None],
) -> None:
    """Serve until the client closes standard input and requests that only read are answered; see `draining`.

    `reads` selects those requests. `ended` is called before the remaining requests are cancelled.
    """
    # The only client may use the whole limit.
    stats = ConnectionStats(ConcurrencyLimiter(replace(limits, of_one=limits.requests)), client="")
    reader, writer = await _lines()
    incoming = Incoming(reader, writer, stats, Draining(stats, writer, reads, ended))
    await server.run(incoming, Outgoing(writer, stats), server.create_initialization_options())


async def _lines() -> tuple[LineReader, LineWriter]:
    """The client's two streams: in the event loop where it can wait for them, else with threads."""
    if pipe_transport.are_pipes(0, 1):
        return await pipe_transport.open_pipes(*_claim())
    if sys.stdin.isatty():
        sys.stderr.write(HINT + "\n")
    # Lazy, because few clients are a terminal or a file.
    from mcp_toolserver.protocol.stdio import file_streams

    return file_streams.open_files(*_claim())


def _claim() -> tuple[int, int]:
    """Move the client's descriptors to where no stray print and no child process finds them."""
    source, target = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return source, target
