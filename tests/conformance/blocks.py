"""Content that the fixtures hand out."""

import base64
import io
import json
import struct
import wave
import zlib

import mcp_types as mcp


def _png() -> str:
    """One red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    pixel = chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + head + pixel + chunk(b"IEND", b"")).decode()


def _wav() -> str:
    """A moment of silence."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(1)
        sound.setframerate(8000)
        sound.writeframes(b"\x80" * 8)
    return base64.b64encode(file.getvalue()).decode()


PNG, WAV = _png(), _wav()
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
