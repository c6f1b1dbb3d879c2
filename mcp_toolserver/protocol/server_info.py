"""The identity of the server that clients show."""

from base64 import b64encode
from pathlib import Path

import mcp_types as mcp

NAME = "mcp-toolserver"
TITLE = "MCP toolserver"
DESCRIPTION = "A coding agent's tools over MCP, with a permission mode that the server enforces."
WEBSITE = "https://github.com/mcp-toolserver/mcp-toolserver"

_ICONS = Path(__file__).parent / "icons"
"""A shield with a prompt. The PNG files are the SVG files, drawn with resvg and reduced to a palette."""


def icons() -> list[mcp.Icon]:
    """The icons for light and dark backgrounds as data URIs, so that nothing has to be fetched.

    Every client that shows icons supports PNG; SVG stays sharp at every size.
    """
    return [
        mcp.Icon(src=_data_uri(f"{theme}.{suffix}", kind), mime_type=kind, sizes=[size], theme=theme)
        for theme in ("light", "dark")
        for suffix, kind, size in (("svg", "image/svg+xml", "any"), ("png", "image/png", "64x64"))
    ]


def _data_uri(name: str, kind: str) -> str:
    return f"data:{kind};base64,{b64encode((_ICONS / name).read_bytes()).decode()}"
