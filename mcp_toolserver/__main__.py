"""`python -m mcp_toolserver` is the same as the `mcp-toolserver` script."""

from mcp_toolserver.server import main

if __name__ == "__main__":
    main()
