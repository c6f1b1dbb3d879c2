"""The entry point of the bundle: the server, from the source in this folder."""

from mcp_toolserver.__main__ import main

main()
