"""Content that the fixtures hand out."""

import json

import mcp_types as mcp

from tests.notebook.notebooks import PIXEL as PNG

WAV = "UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAgICAgICAgA=="
"""A moment of silence."""
IMAGE = mcp.ImageContent(type="image", data=PNG, mime_type="image/png")
AUDIO = mcp.AudioContent(type="audio", data=WAV, mime_type="audio/wav")


def words(text: str) -> mcp.TextContent:
    return mcp.TextContent(type="text", text=text)


def embedded(uri: str, text: str, mime_type: str = "text/plain") -> mcp.EmbeddedResource:
    contents = mcp.TextResourceContents(uri=uri, text=text, mime_type=mime_type)
    return mcp.EmbeddedResource(type="resource", resource=contents)


EMBEDDED = embedded("test://embedded-resource", "What a tool embeds.")
MIXED = (
    words("Of each kind one:"),
    IMAGE,
    embedded("test://mixed", json.dumps({"test": "data", "value": 123}), "application/json"),
)


def result(*content: mcp.ContentBlock, is_error: bool = False) -> mcp.CallToolResult:
    return mcp.CallToolResult(content=list(content), is_error=is_error)
