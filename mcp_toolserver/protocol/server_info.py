"""The identity of the server that clients show."""

from base64 import b64encode

import mcp_types as mcp

NAME = "mcp-toolserver"
TITLE = "MCP toolserver"
DESCRIPTION = "A coding agent's tools over MCP, with a permission mode that the server enforces."

_DRAWING = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" fill="none" stroke="#2a7f62" '
    'stroke-width="2" stroke-linecap="round" stroke-linejoin="round">'
    '<path d="M12 2l8 3v6c0 5-3.4 9-8 11-4.6-2-8-6-8-11V5z"/><path d="M8.5 9l3 3-3 3M13 15h3"/></svg>'
)
"""A shield with a prompt, in a colour that works on light and dark."""


def icons() -> list[mcp.Icon]:
    """The icon as a data URI, so that nothing has to be fetched."""
    source = f"data:image/svg+xml;base64,{b64encode(_DRAWING.encode()).decode()}"
    return [mcp.Icon(src=source, mime_type="image/svg+xml", sizes=["any"])]
