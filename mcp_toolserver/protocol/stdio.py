"""Serving one client over standard input and output.

While serving, descriptor 0 is the null device and descriptor 1 is standard error, so that nothing but
JSON-RPC can reach the client.
"""

import sys
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

HINT = (
    "mcp-toolserver: waiting for an MCP client on standard input. "
    "Run `mcp-toolserver demo` to see it work, or --help for more; Ctrl-C ends it."
)


async def serve_stdio(server: Server[Any]) -> None:
    """Serve until the client closes standard input."""
    if sys.stdin.isatty():
        sys.stderr.write(HINT + "\n")
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
