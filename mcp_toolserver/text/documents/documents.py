"""Converts a document to text with the parser of its type."""

from dataclasses import dataclass

from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.text.documents.blocks import Shown, Wanted
from mcp_toolserver.text.documents.file_type import DocumentKind


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Text that is shown as the lines of a file are."""

    content: bytes
    note: str = ""


def shown(kind: DocumentKind, content: bytes, wanted: Wanted) -> Shown | Lines:
    """Return the content of the file: the requested blocks, or its whole text as lines.

    Raises:
        Unavailable: what it takes is not installed.
        InvalidInput: it cannot be read; the text goes on from the name of the file.
    """
    # Each brings a library, or more of our own code than a server that is never asked should load.
    match kind:
        case "notebook":
            return _notebook(content, wanted)
        case "PDF":
            from mcp_toolserver.text.documents.pdf import pages

            return pages(content, wanted)
        case "docx":
            from mcp_toolserver.text.documents.office import word

            return _text(word(content))
        case _:
            from mcp_toolserver.text.documents.office import sheets

            return _text(sheets(content))


def _notebook(content: bytes, wanted: Wanted) -> Shown | Lines:
    from mcp_toolserver.text.notebook.render import view

    try:
        return view(content, wanted)
    except InvalidInput as error:
        # Whoever is to mend it has to see it.
        return Lines(content=content, note=f"shown as text, because as a notebook it {error}")


def _text(text: str) -> Shown | Lines:
    if not text.strip():
        return Shown(text="[the document has no text]")
    return Lines(content=text.encode(errors="replace"))
