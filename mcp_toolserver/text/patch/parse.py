"""Parses a patch in either format."""

from mcp_toolserver.text.edit.occurrences import folded
from mcp_toolserver.text.patch.envelope_format import BEGIN, parse_envelope
from mcp_toolserver.text.patch.model import Patch
from mcp_toolserver.text.patch.unified_format import parse_unified


def parse(text: str) -> Patch:
    """Read a patch.

    Raises:
        ValueError: it cannot be read; the text says where and what to send.
    """
    # Where even the headers have carriage returns, they come from how the patch was sent.
    if text.count("\r\n") == text.count("\n"):
        text = folded(text)
    is_envelope = any(line.strip() == BEGIN for line in text.split("\n"))
    return parse_envelope(text) if is_envelope else parse_unified(text)
