"""Parses a patch in either format."""

from mcp_toolserver.text.edit.occurrences import folded
from mcp_toolserver.text.patch.envelope_format import BEGIN, END, envelope_sections
from mcp_toolserver.text.patch.model import Patch, Source
from mcp_toolserver.text.patch.unified_format import unified_sections

MAX_FILES = 100
"""Files of one patch; all are held open at the same time."""

MAX_HUNKS = 1_000


def parse(text: str) -> Patch:
    """Read a patch.

    Raises:
        ValueError: it cannot be read, or is too large; the text says where and what to send.
    """
    # Where even the headers have carriage returns, they come from how the patch was sent.
    if text.count("\r\n") == text.count("\n"):
        text = folded(text)
    is_envelope = any(line.strip() == BEGIN for line in text.split("\n"))
    sections = tuple((envelope_sections if is_envelope else unified_sections)(Source(text)))
    if not sections and is_envelope:
        raise ValueError(f"there is nothing between {BEGIN!r} and {END!r}; add a section for each file")
    if not sections:
        raise ValueError(
            "the patch names no file: start it with '*** Begin Patch', or with the lines '--- a/path' and "
            "'+++ b/path' before the first '@@'"
        )
    patch = Patch(sections=sections)
    if len(patch.paths) > MAX_FILES:
        raise ValueError(f"the patch names {len(patch.paths)} files; at most {MAX_FILES} can change at once")
    if sum(len(section.hunks) for section in sections) > MAX_HUNKS:
        raise ValueError(f"the patch has more than {MAX_HUNKS} hunks; send it in parts")
    return patch
