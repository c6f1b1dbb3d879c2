"""The `mcp-toolserver` script, and `python -m mcp_toolserver`."""

from typing import NoReturn

from mcp_toolserver import interrupts


def main() -> NoReturn:
    """See `main.main`."""
    interrupts.end_at_once()
    # A KeyboardInterrupt during an import can be lost, so the large imports come after this.
    from mcp_toolserver import main

    main.main()


if __name__ == "__main__":
    main()
